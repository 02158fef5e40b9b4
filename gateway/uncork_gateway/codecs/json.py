"""Input of any JSON value, one row per request."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from uncork_gateway.codecs.base import Marshalled, check_weighed, of_columns, of_tensor
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.codecs.groups import NO_GROUPS, RowGroups
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import SPACE
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.forms import ValueForm
from uncork_workers.wire.schema import JSON

_LARGE_BYTES = 64 * 1024

ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax without building anything."""


class JsonCodec:
    """Accepts one JSON value as one row, unchanged. The worker checks its content.

    For large values without a cost, the worker also checks the syntax, which would take the gateway a quarter
    of the time it spends on them.
    """

    accepts: ClassVar[tuple[str, ...]] = (JSON,)
    summary = "One JSON value."
    one_or_many = False

    def __init__(
        self,
        weigh: Weigh = unweighed,
        *,
        limits: Limits = DEFAULT_LIMITS,
        groups: RowGroups = NO_GROUPS,
    ) -> None:
        self._weigh = weigh
        self._groups = groups
        self.limits = limits

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        if self._groups.fields:
            values = self._groups.of_body(body)
            return Marshalled(body, rows=1, cost=self._weigh([body.strip(SPACE)]), values=values)
        counts_rows = self._weigh is unweighed
        if counts_rows and len(body) >= _LARGE_BYTES:
            return Marshalled(body, rows=1, form=ValueForm())
        decode_json(ANY_JSON, body, "JSON")
        if counts_rows:
            return Marshalled(body, rows=1)
        return Marshalled(body, rows=1, cost=self._weigh([body.strip(SPACE)]))

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        return self._groups.divide(b",".join(rows), rows, self._of_rows)

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        check_weighed([tensor], self._weigh, self.limits)
        return self._groups.absent(of_tensor(tensor, self._weigh))

    def marshal_columns(self, tensors: Sequence[Tensor]) -> Marshalled:
        check_weighed(tensors, self._weigh, self.limits)
        return self._groups.divide_columns(tensors, lambda some: of_columns(some, self._weigh), self.limits)

    def _of_rows(self, body: bytes, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        return Marshalled(body, rows=len(rows), single=False, cost=self._weigh(rows))
