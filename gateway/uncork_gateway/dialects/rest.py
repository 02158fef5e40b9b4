"""The dialect of KServe V1 and TensorFlow Serving's REST API."""

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.dialects.base import JSON, HandlerResult, Reply, require_rows
from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.headers import Header
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.raw_json import Parts, quoted, written
from uncork_gateway.protocols.rows import as_rows, error_body, parse_rows
from uncork_gateway.protocols.tensor_rows import columns_of, row_texts
from uncork_gateway.protocols.wire import Unmergeable
from uncork_workers.wire.messages import RowPath, json_path

SIGNATURE = "serving_default"
"""The name of a model's only signature in TensorFlow Serving."""
_name_decoder = msgspec.json.Decoder(str | None)


def check_signature(name: str | None) -> None:
    """Raise BadRequest if a client names a signature other than the default."""
    if name not in (SIGNATURE, "", None):
        raise BadRequest(
            f"unknown signature {name!r}; this model has only {SIGNATURE!r}: send that, or no signature_name"
        )


class Rest:
    """Reads rows from ``instances`` or ``inputs``, and writes a list with a result for each.

    Args:
        results: the list's name, ``predictions`` or ``explanations``.
        kserve: True if a response to ``instances`` has ``message`` and ``batchId``, as KServe's batcher
            writes.
    """

    def __init__(
        self, codec: Codec, *, inputs: Inputs = ANY_INPUTS, results: str = "predictions", kserve: bool
    ) -> None:
        self._codec = codec
        self._inputs = inputs
        self._results = results
        self._kserve = kserve

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        """Return nothing: servers of these protocols read JSON whatever its content type."""
        return ()

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """Read rows from ``instances``, or columns from ``inputs``, which become rows that are objects."""
        try:
            request = parse_rows(body, self._codec.limits)
        except Unmergeable as error:
            raise BadRequest(str(error)) from None
        others = dict(request.others)
        if "signature_name" in others:
            text = others["signature_name"]
            check_signature(decode_json(_name_decoder, text, "a text", name="signature_name"))
        locate = _in_columns if request.names is not None else _IN_ROWS[request.member]
        rows = [self._inputs.read_row(row, self._codec.limits) for row in as_rows(request)]
        return replace(self._codec.marshal(rows), note=request.member, locate=locate)

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """Return a result per row; for ``inputs``, columns if all results are objects of the same names."""
        require_rows(reply)
        results = b"[%b]" % reply.body
        if asked.note == "inputs":
            return JSON, written({"outputs": columns_of(row_texts(reply.body)) or results})
        fields: dict[str, Parts] = {}
        if self._kserve:
            fields = {"message": quoted(""), "batchId": quoted(batch_id)}
        return JSON, written({**fields, self._results: results})

    def error(self, error: GatewayError, request_id: bytes = b"") -> Reply:
        return JSON, error_body(str(error))


def _in_rows(member: str, asked: Marshalled, place: RowPath) -> str:
    return json_path(member, place.row, *place.path)


def _in_columns(asked: Marshalled, place: RowPath) -> str:
    if not place.path:
        return f"row {place.row + 1} of {json_path('inputs')}"
    name, *rest = place.path
    return json_path("inputs", name, place.row, *rest)


_IN_ROWS = {member: partial(_in_rows, member) for member in ("instances", "inputs")}
