"""The classes of gRPC messages, in a descriptor pool of their own.

In protobuf's default pool, packages that register the same names, such as the clients of Triton, KServe and
MLServer, could not be imported together with the gateway. Generated code would tie the gateway to one major
version of protobuf, so ``messages.binpb`` has the definitions in ``protos``; ``scripts/build messages``
writes it.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, message_factory, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import TooMany

# An empty field takes two bytes of a message, but up to 16 in memory, and a message in it 144. The limit is
# as many values as a request may have by default.
_MOST_FIELDS = 1_000_000
_FIELDS_PER_MESSAGE = 9
_MOST_UNCOUNTED_BYTES = 2**20
_MOST_VARINT_BYTES = 10
_VARINTS = frozenset(
    (
        *(FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32),
        *(FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_BOOL, FieldDescriptor.CPPTYPE_ENUM),
    )
)
# The bytes of varints, but the last of each.
_NOT_LAST = bytes(range(0x80, 0x100))
_DEFINITIONS = Path(__file__).parent / "messages.binpb"


def _make_pool() -> tuple[DescriptorPool, list[str]]:
    pool = DescriptorPool()
    services = []
    for imported in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    for file in FileDescriptorSet.FromString(_DEFINITIONS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
        services += [f"{file.package}.{service.name}" for service in file.service]
    return pool, services


POOL, SERVICES = _make_pool()
"""The pool of all messages, and the full names of all services."""


@cache
def message(name: str) -> Any:
    """Return the class of a message by its full name, such as ``inference.ModelInferRequest``.

    Raises:
        KeyError: if there is no such message.
    """
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


def parse(kind: Any, data: bytes) -> Any:
    """Parse a message of a class.

    Raises:
        BadRequest: if the bytes are not such a message.
        TooMany: if it has too many fields.
    """
    try:
        if len(data) > _MOST_UNCOUNTED_BYTES:
            _check_fields(kind.DESCRIPTOR, data)
        return kind.FromString(data)
    # UnicodeDecodeError from protobuf without its extension in C, IndexError from our count.
    except (DecodeError, UnicodeDecodeError, IndexError):
        name = kind.DESCRIPTOR.full_name
        raise BadRequest(f"the message of {plural(len(data), 'byte')} is not a valid {name}") from None


def _check_fields(kind: Any, data: bytes) -> None:
    """Count the fields of a large message before they take memory.

    Raises:
        TooMany: if there are too many.
        DecodeError, IndexError: if the bytes are no message.
    """
    left, messages = _MOST_FIELDS, [(kind.fields_by_number, 0, len(data))]
    while messages:
        fields, at, end = messages.pop()
        while at < end:
            tag, at = _varint(data, at)
            left -= 1
            match tag & 7:
                case 0:
                    _, at = _varint(data, at)
                case 1:
                    at += 8
                case 2:
                    size, at = _varint(data, at)
                    field = fields.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        left -= _FIELDS_PER_MESSAGE
                        messages.append((field.message_type.fields_by_number, at, at + size))
                    elif field is not None and field.cpp_type in _VARINTS:
                        left -= len(data[at : at + size].translate(None, _NOT_LAST))
                    at += size
                case 5:
                    at += 4
            if left < 0:
                raise TooMany(
                    f"a message may have at most {_MOST_FIELDS} fields and integers, of which each nested "
                    f"message counts as {1 + _FIELDS_PER_MESSAGE}; send several requests"
                )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for place in range(1, _MOST_VARINT_BYTES):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise DecodeError


def make(name: str, /, **fields: Any) -> Message:
    """Create a message by its full name; dictionaries stand for messages, names for enum values."""
    made: Message = message(name)(**fields)
    return made
