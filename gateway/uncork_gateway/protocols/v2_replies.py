"""Replies of the Open Inference Protocol V2: split between the requests of a call, and joined."""

from collections.abc import Sequence

import msgspec

from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.tensor_replies import join_outputs, split_outputs
from uncork_gateway.protocols.tensors import Malformed, Tensor
from uncork_gateway.protocols.v2_message import NULL, WireTensor, read, read_tensors
from uncork_gateway.protocols.wire import Content, WrongReply

# Parameters of a tensor as a whole, not values of its rows.
WHOLE_PARAMETERS = frozenset({"content_type", "headers"})
_outputs_decoder = msgspec.json.Decoder(list[WireTensor])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class InferReply(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a reply for one request, or for a part of one.

    Attributes:
        members: everything but outputs and id, as raw JSON by name.
        rows: of the request.
    """

    members: dict[str, bytes]
    outputs: list[Tensor]
    rows: int


def split(reply: Content, rows: Sequence[int]) -> list[InferReply]:
    """Split a reply between requests with ``rows`` rows each. A reply to one request stays whole.

    Raises:
        WrongReply: if it cannot be read, or an output has neither as many rows as the requests nor one.
    """
    try:
        message = read(reply, "outputs")
        described = decode_json(_outputs_decoder, message.tensors, "a list of tensors", name="outputs")
        outputs = read_tensors(described, message.blocks)
        if len(rows) == 1:
            return [InferReply(members=message.members, outputs=outputs, rows=rows[0])]
        shares = split_outputs(outputs, rows)
    except Malformed as error:
        raise WrongReply(str(error)) from error
    for at, output in enumerate(outputs):
        if output.parameters:
            for share, own in zip(shares, _split_parameters(output.parameters, rows), strict=True):
                share[at] = msgspec.structs.replace(share[at], parameters=own)
    return [
        InferReply(members=message.members, outputs=share, rows=count)
        for count, share in zip(rows, shares, strict=True)
    ]


def join(parts: Sequence[InferReply]) -> InferReply:
    """Join the replies to the parts of a request, in order.

    Raises:
        WrongReply: if their outputs differ.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    rows = [part.rows for part in parts]
    try:
        outputs = join_outputs([part.outputs for part in parts], rows)
    except Malformed as error:
        raise WrongReply(str(error)) from error
    pieces = zip(*(part.outputs for part in parts), strict=True)
    outputs = [
        msgspec.structs.replace(output, parameters=_join_parameters([piece.parameters for piece in of], rows))
        for output, of in zip(outputs, pieces, strict=True)
    ]
    return InferReply(members=first.members, outputs=outputs, rows=sum(rows))


def _split_parameters(parameters: dict[str, bytes], rows: Sequence[int]) -> list[dict[str, bytes]]:
    shares: list[dict[str, bytes]] = [{} for _ in rows]
    for name, value in parameters.items():
        for own, share in zip(shares, _split_parameter(name, value, rows), strict=True):
            if share != NULL:
                own[name] = share
    return shares


def _split_parameter(name: str, value: bytes, rows: Sequence[int]) -> list[bytes]:
    """Split a list between requests, or between their rows; every request gets anything else whole."""
    values = None if name in WHOLE_PARAMETERS else _raw_list(value)
    if values is None:
        return [value] * len(rows)
    if len(values) <= len(rows):
        return values + [NULL] * (len(rows) - len(values))
    if len(values) != sum(rows):
        return [value] * len(rows)
    shares, at = [], 0
    for count in rows:
        own = values[at : at + count]
        shares.append(own[0] if count == 1 else _list(own))
        at += count
    return shares


def _join_parameters(parts: Sequence[dict[str, bytes]], rows: Sequence[int]) -> dict[str, bytes]:
    """Join parameters: equal ones once, lists with a value per row end to end, else the first."""
    parameters = {}
    for name, first in parts[0].items():
        values = [part.get(name, NULL) for part in parts]
        equal = all(value == first for value in values)
        by_row = None if equal or name in WHOLE_PARAMETERS else _by_row(values, rows)
        parameters[name] = _list(by_row) if by_row else first
    return parameters


def _by_row(values: Sequence[bytes], rows: Sequence[int]) -> list[bytes] | None:
    """Return the values of all rows; None if a part lacks a value for each of its rows."""
    by_row: list[bytes] = []
    for value, count in zip(values, rows, strict=True):
        listed = _raw_list(value)
        if listed is None and count == 1:
            listed = [value]
        if listed is None or len(listed) != count:
            return None
        by_row += listed
    return by_row


def _raw_list(value: bytes) -> list[bytes] | None:
    if not value.startswith(b"["):
        return None
    return [bytes(item) for item in _list_decoder.decode(value)]


def _list(values: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(values)
