"""Any JSON value, one row each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from uncork_gateway.codecs.base import Marshalled, raw_rows
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensor_rows import json_rows
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.schema import JSON

SPACE = b" \t\r\n"
_decoder = msgspec.json.Decoder(msgspec.Raw)


class JsonCodec:
    """The body is one JSON value and travels as it came."""

    accepts = (JSON,)

    def __init__(self, weigh: Weigh = unweighed) -> None:
        self._weigh = weigh

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Check that the body is one JSON value; its content is the worker's to check."""
        check_json(body)
        return Marshalled(body, rows=1, cost=self._weigh([body.strip(SPACE)]))

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Any values will do."""
        return Marshalled(b",".join(rows), rows=len(rows), single=False, cost=self._weigh(rows))

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Leave a binary tensor as it is, unless its rows are weighed: their weight is that of JSON."""
        if tensor.form == "binary" and self._weigh is unweighed:
            return raw_rows(tensor)
        return self.marshal(json_rows(tensor))

    def encode(self, rows: bytes, *, single: bool) -> bytes:
        """The answer is one JSON value too."""
        return rows


def check_json(body: bytes) -> None:
    """Check syntax without building anything.

    Raises:
        BadRequest: if the body is not exactly one JSON value.
    """
    try:
        _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
