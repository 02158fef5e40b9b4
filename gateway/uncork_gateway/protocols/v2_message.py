"""Reads and writes bodies of the Open Inference Protocol V2: JSON, then the bytes of binary tensors."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from uncork_dispatcher.wording import plural
from uncork_gateway.headers import JSON_LENGTH
from uncork_gateway.protocols.lenient_json import read_members
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import NULL, SPACE, Malformed, quoted, written
from uncork_gateway.protocols.tensors import (
    DataForm,
    Tensor,
    check_kind,
    malformed,
)
from uncork_gateway.protocols.wire import JSON, Content

ABSENT = msgspec.Raw(NULL)
_BINARY_SIZE = "binary_data_size"
# More digits than any body has bytes.
_MOST_DIGITS = 18
_EXCERPT_BYTES = 20
_OCTETS = (b"content-type", b"application/octet-stream")


class WireTensor(msgspec.Struct):
    """The JSON description of a tensor."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, msgspec.Raw] | None = None
    data: msgspec.Raw = ABSENT


class Message(NamedTuple):
    """A parsed body.

    Attributes:
        id: the id as raw JSON, if the body has one.
        members: all other members except the tensors, as raw JSON by name.
        tensors: the descriptions of all tensors.
        blocks: the bytes after the JSON.
    """

    id: bytes | None
    members: dict[str, bytes]
    tensors: msgspec.Raw
    blocks: memoryview


def read(content: Content, tensors_name: str, limits: Limits = DEFAULT_LIMITS) -> Message:
    """Parse a body whose tensors are in the member ``tensors_name``.

    Raises:
        Malformed: if the body is not an object with tensors, or not UTF-8, its id is not a string, or the
            header with the length of the JSON is wrong.
        TooMany: if the members or tensors exceed the limit on rows.
    """
    text, blocks = _halves(content)
    limits.check_items(text)
    limits.check_members(text)
    try:
        members = read_members(text)
    except Malformed as error:
        if len(text) == len(content.body) and _BINARY_SIZE.encode() in text:
            raise Malformed(
                f"{error}; if binary data follows the JSON, send the length of the JSON in the header "
                "Inference-Header-Content-Length"
            ) from error
        raise
    tensors = members.pop(tensors_name, None)
    if tensors is None:
        raise Malformed(
            f"{tensors_name!r} is missing; the body has {', '.join(map(repr, members)) or 'no members'}"
        )
    for part in (tensors, members.get("outputs", ABSENT), members.get("parameters", ABSENT)):
        limits.check_items(part)
    own_id = bytes(members.pop("id", ABSENT))
    if own_id != NULL and not own_id.startswith(b'"'):
        raise Malformed(f"id must be a string, got {excerpt(own_id)}")
    return Message(None if own_id == NULL else own_id, raw_members(members), tensors, blocks)


def natural(text: bytes) -> int | None:
    """Return a non-negative integer, or None if the text is anything else."""
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def excerpt(text: bytes) -> str:
    """Return the beginning of an invalid text, for an error message."""
    return repr(text[:_EXCERPT_BYTES].decode(errors="replace"))


def read_tensors(described: Sequence[WireTensor], blocks: memoryview) -> list[Tensor]:
    """Read tensors from their descriptions and the bytes after the JSON, without checking data against shape.

    Raises:
        Malformed: if a description is invalid, or the number of bytes does not match the descriptions.
    """
    tensors, at = [], 0
    for wire in described:
        check_kind(wire.name, wire.datatype, wire.shape)
        parameters = raw_members(wire.parameters)
        size = parameters.pop(_BINARY_SIZE, None)
        if size is None:
            form, data = _json_values(wire)
        else:
            end = at + _block_bytes(wire, size)
            if end > len(blocks):
                raise malformed(
                    wire.name, f"its binary data ends at byte {end}, got {plural(len(blocks), 'byte')}"
                )
            form, data, at = "binary", bytes(blocks[at:end]), end
        tensors.append(Tensor(wire.name, wire.datatype, tuple(wire.shape), form, data, parameters))
    if at != len(blocks):
        raise Malformed(
            f"expected {plural(at, 'byte')} of binary data by the tensors' {_BINARY_SIZE}, got {len(blocks)}"
        )
    return tensors


def raw_members(members: dict[str, msgspec.Raw] | None) -> dict[str, bytes]:
    """Copy the members of an object, so that they do not keep the body alive."""
    return {name: bytes(value) for name, value in members.items()} if members else {}


def write(
    members: dict[str, bytes], request_id: bytes | None, tensors_name: bytes, tensors: Sequence[Tensor]
) -> Content:
    """Return a body: members as raw JSON, the id if given, and the tensors as member ``tensors_name``."""
    if request_id is not None:
        members = {**members, "id": request_id}
    # Joined at once, so that large values are copied once.
    parts = [b"%b:%b," % (quoted(name), value) for name, value in members.items()]
    text = [b"{", *parts, b'"%b":[' % tensors_name]
    for at, tensor in enumerate(tensors):
        text += (b"," if at else b"", *_described(tensor))
    text.append(b"]}")
    blocks = [tensor.data for tensor in tensors if tensor.form == "binary"]
    if not blocks:
        return Content(b"".join(text), (JSON,))
    return Content(b"".join([*text, *blocks]), (_OCTETS, (JSON_LENGTH, b"%d" % sum(map(len, text)))))


def _halves(content: Content) -> tuple[bytes, memoryview]:
    body, length = content.body, len(content.body)
    header = content.header(JSON_LENGTH)
    if header is not None:
        number = natural(header)
        if number is None or number > length:
            raise Malformed(
                f"Inference-Header-Content-Length must be from 0 to {length}, the size of the body in bytes, "
                f"got {excerpt(header)}"
            )
        length = number
    text = body[:length]
    # Values that are only passed on are never decoded, so nothing else checks their text.
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"the JSON is not valid UTF-8: {error}") from error
    return text, memoryview(body)[length:]


def _json_values(wire: WireTensor) -> tuple[DataForm, bytes]:
    data = bytes(wire.data)
    if not data.startswith(b"["):
        raise Malformed(
            f"tensor {wire.name!r} needs a list in data, or the parameter binary_data_size and binary data"
        )
    text = data[1:-1].strip(SPACE)
    return ("nested" if text.startswith(b"[") else "flat"), text


def _block_bytes(wire: WireTensor, size: bytes) -> int:
    if bytes(wire.data) != NULL:
        raise Malformed(f"tensor {wire.name!r} has both data and binary_data_size; send only one")
    number = natural(size)
    if number is None:
        raise malformed(
            wire.name, f"binary_data_size must be a number of bytes, at least 0, got {excerpt(size)}"
        )
    return number


def _described(tensor: Tensor) -> tuple[bytes, ...]:
    parameters = tensor.parameters
    if tensor.form == "binary":
        parameters = {**parameters, _BINARY_SIZE: b"%d" % len(tensor.data)}
    start = b'{"name":%b,"shape":[%b],"datatype":"%b"%b' % (
        quoted(tensor.name),
        ",".join(map(str, tensor.shape)).encode(),
        tensor.datatype.encode(),
        b',"parameters":%b' % written(parameters) if parameters else b"",
    )
    return (start, b"}") if tensor.form == "binary" else (start, b',"data":[', tensor.data, b"]}")
