"""Replies of the Open Inference Protocol V2: splits them between requests, and joins them."""

from collections.abc import Sequence

import msgspec

from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.lenient_json import read_members, read_structs
from uncork_gateway.protocols.raw_json import NULL, TooMany, elements, written
from uncork_gateway.protocols.tensor_replies import TOO_MANY, join_outputs, split_outputs
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.v2_message import WireTensor, raw_members, read, read_tensors
from uncork_gateway.protocols.wire import Content, WrongReply, if_certain

# Parameters of a tensor as a whole, not values of its rows.
WHOLE_PARAMETERS = frozenset({"content_type", "headers"})
_outputs_decoder = msgspec.json.Decoder(list[WireTensor])


class InferReply(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a reply for one request, or for a part of one.

    Attributes:
        members: all members except outputs and id, as raw JSON by name.
        rows: the number of rows of the request.
    """

    members: dict[str, bytes]
    outputs: list[Tensor]
    rows: int


def split(reply: Content, rows: Sequence[int]) -> list[InferReply]:
    """Split a reply between requests with ``rows`` rows each. A reply to one request stays unchanged.

    Raises:
        WrongReply: if the reply is malformed, or an output or a list lacks values for some requests.
    """
    try:
        message = read(reply, "outputs")
        described = read_structs(
            _outputs_decoder, WireTensor, message.tensors, "a list of tensors", name="outputs"
        )
        outputs = read_tensors(described, message.blocks)
        if len(rows) == 1:
            return [InferReply(members=message.members, outputs=outputs, rows=rows[0])]
        shares = split_outputs(outputs, rows)
        members = _split_members(message.members, rows)
    except TooMany as error:
        raise WrongReply(TOO_MANY) from error
    except BadRequest as error:
        raise WrongReply(str(error)) from error
    for at, output in enumerate(outputs):
        if output.parameters:
            for share, own in zip(shares, _split_parameters(output.parameters, rows), strict=True):
                share[at] = msgspec.structs.replace(share[at], parameters=own)
    return [
        InferReply(members=own, outputs=share, rows=count)
        for count, own, share in zip(rows, members, shares, strict=True)
    ]


def join(parts: Sequence[InferReply]) -> InferReply:
    """Join the replies to the parts of a request, in order; raises as :meth:`Wire.join`."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.members != first.members for part in parts):
        raise WrongReply(f"the responses to the parts of a request differ in one of {list(first.members)}")
    rows = [part.rows for part in parts]
    try:
        outputs, certain = join_outputs([part.outputs for part in parts], rows)
    except TooMany as error:
        raise WrongReply(TOO_MANY) from error
    except BadRequest as error:
        raise WrongReply(str(error)) from error
    for at, pieces in enumerate(zip(*(part.outputs for part in parts), strict=True)):
        parameters, own_certain = _join_parameters([piece.parameters for piece in pieces], rows)
        outputs[at] = msgspec.structs.replace(outputs[at], parameters=parameters)
        certain = certain and own_certain
    return if_certain(InferReply(members=first.members, outputs=outputs, rows=sum(rows)), certain)


def _split_members(members: dict[str, bytes], rows: Sequence[int]) -> list[dict[str, bytes]]:
    """Split all members except outputs and id between requests, ``parameters`` by each of its values."""
    shares = _split_parameters(members, rows)
    text = members.get("parameters", NULL)
    if text != NULL:
        parameters = raw_members(read_members(text, name="parameters"))
        for share, own in zip(shares, _split_parameters(parameters, rows), strict=True):
            share["parameters"] = text if own == parameters else written(own)
    return shares


def _split_parameters(parameters: dict[str, bytes], rows: Sequence[int]) -> list[dict[str, bytes]]:
    shares: list[dict[str, bytes]] = [{} for _ in rows]
    for name, value in parameters.items():
        for own, share in zip(shares, _split_parameter(name, value, rows), strict=True):
            if share != NULL or value == NULL:
                own[name] = share
    return shares


def _split_parameter(name: str, value: bytes, rows: Sequence[int]) -> list[bytes]:
    """Split a list with a value per request or per row; repeat any other value for every request."""
    values = None if name in WHOLE_PARAMETERS else _raw_list(value)
    if values is None:
        return [value] * len(rows)
    if len(values) <= len(rows):
        return values + [NULL] * (len(rows) - len(values))
    if len(values) != sum(rows):
        raise WrongReply(
            f"expected {name!r} to have a value for each of {len(rows)} requests or {sum(rows)} rows, got a "
            f"list of {len(values)}"
        )
    shares, at = [], 0
    for count in rows:
        own = values[at : at + count]
        shares.append(own[0] if count == 1 else written(own))
        at += count
    return shares


def _join_parameters(parts: Sequence[dict[str, bytes]], rows: Sequence[int]) -> tuple[dict[str, bytes], bool]:
    """Join parameters: concatenate lists with a value per row; all others must be equal.

    Also return True if that is certain: equal lists with a value per row may be one list for all rows.
    """
    parameters, certain = {}, True
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part.get(name, NULL) for part in parts]
        first, equal = values[0], len(set(values)) == 1
        by_row = None if name in WHOLE_PARAMETERS else _by_row(values, rows)
        if equal:
            certain = certain and not (by_row and first.startswith(b"["))
            parameters[name] = first
        elif by_row:
            parameters[name] = written(by_row)
        else:
            raise WrongReply(
                f"the responses to the parts of a request differ in {name!r}, which has no value per row"
            )
    return parameters, certain


def _by_row(values: Sequence[bytes], rows: Sequence[int]) -> list[bytes] | None:
    """Return the values of all rows in order; None if a part lacks a value for any of its rows."""
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
    return [bytes(item) for item in elements(msgspec.Raw(value))]
