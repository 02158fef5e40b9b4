"""Any JSON value, one row each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from uncork_gateway.codecs.base import Marshalled, raw_rows
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensor_rows import json_rows
from uncork_gateway.protocols.tensors import SPACE, Tensor
from uncork_workers.wire.schema import JSON

_decoder = msgspec.json.Decoder(msgspec.Raw)


class JsonCodec:
    """Takes one JSON value as one row, unchanged. The worker checks its content."""

    accepts: tuple[str, ...] = (JSON,)

    def __init__(self, weigh: Weigh = unweighed) -> None:
        self._weigh = weigh

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Check that the body is one JSON value."""
        check_json(body)
        return Marshalled(body, rows=1, cost=self._weigh([body.strip(SPACE)]))

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Accept any values."""
        return Marshalled(b",".join(rows), rows=len(rows), single=False, cost=self._weigh(rows))

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Keep a binary tensor as it is, unless the API has a cost, which is computed from JSON."""
        if tensor.form == "binary" and self._weigh is unweighed:
            return raw_rows(tensor)
        return self.marshal(json_rows(tensor))


def check_json(body: bytes) -> None:
    """Check the syntax without building anything.

    Raises:
        BadRequest: if the body is not exactly one JSON value.
    """
    try:
        _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
