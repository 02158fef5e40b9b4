"""Replies of the Open Inference Protocol V2: split between the requests of a call, and joined."""

from collections.abc import Sequence

import msgspec

from uncork_dispatcher.plural import plural
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.tensors import Malformed, Tensor, check_values, concatenate, split_rows
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
        if not outputs:
            raise WrongReply(f"expected outputs with {plural(sum(rows), 'row')}, got no outputs")
        shares = [_split_output(output, rows) for output in outputs]
    except Malformed as error:
        raise WrongReply(str(error)) from error
    return [
        InferReply(members=message.members, outputs=list(share), rows=count)
        for count, share in zip(rows, zip(*shares, strict=True), strict=True)
    ]


def join(parts: Sequence[InferReply]) -> InferReply:
    """Join the replies to the parts of a request, in order.

    Raises:
        WrongReply: if their outputs differ.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    names = [output.name for output in first.outputs]
    for part in parts:
        got = [output.name for output in part.outputs]
        if got != names:
            raise WrongReply(
                f"the responses to the parts of a request have different outputs: {names} and {got}"
            )
    rows = [part.rows for part in parts]
    pieces = zip(*(part.outputs for part in parts), strict=True)
    try:
        outputs = [_join_output(output, rows) for output in pieces]
    except Malformed as error:
        raise WrongReply(str(error)) from error
    return InferReply(members=first.members, outputs=outputs, rows=sum(rows))


def _split_output(output: Tensor, rows: Sequence[int]) -> list[Tensor]:
    check_values(output)
    total = sum(rows)
    match output.shape:
        case (length, *_) if length == total:
            pieces = split_rows(output, rows)
        case (1, *_):
            pieces = [output] * len(rows)
        case _:
            raise WrongReply(
                f"output {output.name!r}: expected {plural(total, 'row')}, or 1 for all requests, "
                f"got shape {list(output.shape)}"
            )
    if not output.parameters:
        return pieces
    parameters = _split_parameters(output.parameters, rows)
    return [
        msgspec.structs.replace(piece, parameters=own) for piece, own in zip(pieces, parameters, strict=True)
    ]


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


def _join_output(pieces: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    first = pieces[0]
    for piece in pieces:
        check_values(piece)
    parameters = _join_parameters([piece.parameters for piece in pieces], rows)
    kinds = {(piece.datatype, piece.form, piece.shape[1:]) for piece in pieces}
    lengths = [piece.shape[0] if piece.shape else 0 for piece in pieces]
    if len(kinds) == 1 and lengths == list(rows):
        return msgspec.structs.replace(concatenate(pieces), parameters=parameters)
    if len(kinds) == 1 and set(lengths) == {1}:
        return msgspec.structs.replace(first, parameters=parameters)
    raise WrongReply(
        f"output {first.name!r}: expected {list(rows)} rows, or 1 in each part, of one datatype and inner "
        f"shape, got {', '.join(f'{piece.datatype} {list(piece.shape)}' for piece in pieces)}"
    )


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
