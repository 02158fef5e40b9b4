"""Bodies of the Open Inference Protocol V2: JSON, with the bytes of binary tensors behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from uncork_dispatcher.plural import plural
from uncork_gateway.protocols.tensors import DATATYPES, MAX_AXES, SPACE, Form, Malformed, Tensor
from uncork_gateway.protocols.wire import Content

JSON_LENGTH = b"inference-header-content-length"
_NULL = b"null"
ABSENT = msgspec.Raw(_NULL)
_BINARY_SIZE = "binary_data_size"
# More digits than any body has bytes.
_MOST_DIGITS = 18
_EXCERPT_BYTES = 20
_MOST_ROWS = 2**63 - 1
_JSON = (b"content-type", b"application/json")
_OCTETS = (b"content-type", b"application/octet-stream")
_T = TypeVar("_T")
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class WireTensor(msgspec.Struct):
    """A tensor as JSON says it."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, msgspec.Raw] | None = None
    data: msgspec.Raw = ABSENT


class Message(NamedTuple):
    """A body taken apart.

    Attributes:
        id: raw JSON, if there is one.
        members: of the object, raw JSON by name, without id and tensors.
        tensors: the JSON of all tensors.
        blocks: the bytes behind the JSON.
    """

    id: bytes | None
    members: dict[str, bytes]
    tensors: msgspec.Raw
    blocks: memoryview


def read(content: Content, tensors_name: str) -> Message:
    """Take a body apart whose tensors have this name.

    Raises:
        Malformed: if it is not an object with tensors, or not in UTF-8, or its id is not a string, or the
            header that says where the JSON ends is wrong.
    """
    text, blocks = _halves(content)
    members = decode(_object_decoder, text, "the body")
    tensors = members.pop(tensors_name, None)
    if tensors is None:
        raise Malformed(f"expected {tensors_name}, got only {', '.join(members) or 'an empty object'}")
    own_id = bytes(members.pop("id", ABSENT))
    if own_id != _NULL and not own_id.startswith(b'"'):
        raise Malformed(f"id must be a string, got {excerpt(own_id)}")
    return Message(None if own_id == _NULL else own_id, raw_members(members), tensors, blocks)


def decode(decoder: msgspec.json.Decoder[_T], text: bytes | msgspec.Raw, name: str) -> _T:
    """Read JSON that messages call by this name.

    Raises:
        Malformed: if it is not JSON, or JSON of another kind.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Malformed(f"{name} is not what the protocol says: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"{name} is not valid JSON: {error}") from error


def natural(text: bytes) -> int | None:
    """A number from 0, or None if the text is not one that a length can be."""
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def excerpt(text: bytes) -> str:
    """The beginning of a text that is wrong, for a message."""
    return repr(text[:_EXCERPT_BYTES].decode(errors="replace"))


def read_tensors(described: Sequence[WireTensor], blocks: memoryview) -> list[Tensor]:
    """Tensors from their JSON and from the bytes behind it. Whether data and shape agree is not looked at.

    Raises:
        Malformed: if one says what cannot be, or there are more or fewer bytes than they say.
    """
    tensors, at = [], 0
    for wire in described:
        _check_kind(wire)
        parameters = raw_members(wire.parameters)
        size = parameters.pop(_BINARY_SIZE, None)
        if size is None:
            form, data = _json_values(wire)
        else:
            end = at + _block_bytes(wire, size)
            if end > len(blocks):
                raise Malformed(
                    f"tensor {wire.name!r}: its binary data ends at byte {end}, there are {len(blocks)}"
                )
            form, data, at = "binary", bytes(blocks[at:end]), end
        tensors.append(
            Tensor(
                name=wire.name,
                datatype=wire.datatype,
                shape=tuple(wire.shape),
                form=form,
                data=data,
                parameters=parameters,
            )
        )
    if at != len(blocks):
        raise Malformed(
            f"expected {plural(at, 'byte')} of binary data, as the tensors say, got {len(blocks)}"
        )
    return tensors


def raw_members(members: dict[str, msgspec.Raw] | None) -> dict[str, bytes]:
    """Members of an object with bytes of their own, which do not keep the body alive."""
    return {name: bytes(value) for name, value in members.items()} if members else {}


def write(members: Sequence[bytes], tensors_name: bytes, tensors: Sequence[Tensor]) -> Content:
    """A body: members of its object as JSON, then the tensors under their name."""
    # Joined at once: large values are copied once.
    text = [b"{", *[b"%b," % each for each in members], b'"%b":[' % tensors_name]
    for at, tensor in enumerate(tensors):
        text += (b"," if at else b"", *_described(tensor))
    text.append(b"]}")
    blocks = [tensor.data for tensor in tensors if tensor.form == "binary"]
    if not blocks:
        return Content(b"".join(text), (_JSON,))
    return Content(b"".join([*text, *blocks]), (_OCTETS, (JSON_LENGTH, b"%d" % sum(map(len, text)))))


def member(name: str, value: bytes) -> bytes:
    """A member of an object; the value is raw JSON."""
    return b"%b:%b" % (msgspec.json.encode(name), value)


def json_object(members: dict[str, bytes]) -> bytes:
    """An object of raw JSON values."""
    return b"{%b}" % b",".join([member(name, value) for name, value in members.items()])


def _halves(content: Content) -> tuple[bytes, memoryview]:
    body, length = content.body, len(content.body)
    header = content.header(JSON_LENGTH)
    if header is not None:
        number = natural(header)
        if number is None or number > length:
            raise Malformed(
                "Inference-Header-Content-Length must be a number of bytes from 0 to the "
                f"{length} of the body, got {excerpt(header)}"
            )
        length = number
    text = body[:length]
    # Values that are only passed on are not decoded, so that nothing else looks at their text.
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"the JSON is not UTF-8: {error}") from error
    return text, memoryview(body)[length:]


def _check_kind(wire: WireTensor) -> None:
    if wire.datatype not in DATATYPES:
        raise Malformed(
            f"tensor {wire.name!r}: datatype must be one of {', '.join(DATATYPES)}, got {wire.datatype!r}"
        )
    if len(wire.shape) > MAX_AXES:
        raise Malformed(
            f"tensor {wire.name!r}: shape must have at most {MAX_AXES} axes, got {len(wire.shape)}"
        )
    for length in wire.shape:
        if not 0 <= length <= _MOST_ROWS:
            raise Malformed(
                f"tensor {wire.name!r}: lengths in shape must be from 0 to {_MOST_ROWS}, got {length}"
            )


def _json_values(wire: WireTensor) -> tuple[Form, bytes]:
    data = bytes(wire.data)
    if not data.startswith(b"["):
        raise Malformed(
            f"tensor {wire.name!r} needs data, a list, or the parameter binary_data_size and binary data"
        )
    text = data[1:-1].strip(SPACE)
    return ("nested" if text.startswith(b"[") else "flat"), text


def _block_bytes(wire: WireTensor, size: bytes) -> int:
    if bytes(wire.data) != _NULL:
        raise Malformed(f"tensor {wire.name!r} has data and binary_data_size; only one of them can be")
    number = natural(size)
    if number is None:
        raise Malformed(
            f"tensor {wire.name!r}: binary_data_size must be a number of bytes from 0, got {excerpt(size)}"
        )
    return number


def _described(tensor: Tensor) -> tuple[bytes, ...]:
    """Pieces of the JSON of a tensor."""
    parameters = tensor.parameters
    if tensor.form == "binary":
        parameters = {**parameters, _BINARY_SIZE: b"%d" % len(tensor.data)}
    start = b'{"name":%b,"shape":[%b],"datatype":"%b"%b' % (
        msgspec.json.encode(tensor.name),
        ",".join(map(str, tensor.shape)).encode(),
        tensor.datatype.encode(),
        b',"parameters":' + json_object(parameters) if parameters else b"",
    )
    return (start, b"}") if tensor.form == "binary" else (start, b',"data":[', tensor.data, b"]}")
