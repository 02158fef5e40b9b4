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
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest

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
    """
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):  # the latter from protobuf without its extension in C
        name = kind.DESCRIPTOR.full_name
        raise BadRequest(f"the message of {plural(len(data), 'byte')} is not a valid {name}") from None


def make(name: str, /, **fields: Any) -> Message:
    """Create a message by its full name; dictionaries stand for messages, names for enum values."""
    made: Message = message(name)(**fields)
    return made
