"""The classes of gRPC messages, built from the tables in :mod:`uncork_gateway.protocols.grpc.tables`.

They stand in a descriptor pool of their own. In protobuf's default pool, packages that register the same
names, such as the clients of Triton, KServe and MLServer, could not be imported beside the gateway. Generated
code would tie the gateway to one major version of protobuf.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf import any_pb2, message_factory, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from uncork_dispatcher.plural import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.grpc.tables import TABLES

_Members = Sequence[Sequence[str]]
_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in ("double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes")
}


class _Reader:
    """Reads a table line by line.

    Attributes:
        files: those read so far; the last one is being read.
    """

    def __init__(self) -> None:
        self.files: list[FileDescriptorProto] = []
        self._messages: dict[str, DescriptorProto] = {}
        self._enums: set[str] = set()
        self._named: list[FieldDescriptorProto] = []

    def read(self, table: str) -> None:
        for line in re.sub(r"\n +", " ", table).split("\n"):
            head, _, rest = line.partition(":")
            members = [member.split() for member in rest.split(",") if member.strip()]
            match head.split():
                case ["file", name, package]:
                    imports = rest.split()
                    file = FileDescriptorProto(
                        name=name, package=package, syntax="proto3", dependency=imports
                    )
                    self.files.append(file)
                case ["enum", path]:
                    self._add_enum(path, members)
                case ["service", name]:
                    self._add_service(name, members)
                case [path]:
                    self._add_message(path, members)
        for field in self._named:
            is_enum = field.type_name in self._enums
            field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE

    def _full(self, name: str) -> str:
        return name if name.startswith(".") else f".{self.files[-1].package}.{name}"

    def _add_enum(self, path: str, members: _Members) -> None:
        parent, _, name = path.rpartition(".")
        enum = (self._messages[self._full(parent)] if parent else self.files[-1]).enum_type.add(name=name)
        self._enums.add(self._full(path))
        for value, number in members:
            enum.value.add(name=value, number=int(number))

    def _add_service(self, name: str, members: _Members) -> None:
        service = self.files[-1].service.add(name=name)
        for method, request, response in members:
            service.method.add(
                name=method,
                input_type=self._full(request.removeprefix("*")),
                output_type=self._full(response.removeprefix("*")),
                client_streaming=request.startswith("*"),
                server_streaming=response.startswith("*"),
            )

    def _add_message(self, path: str, members: _Members) -> DescriptorProto:
        parent, _, name = path.rpartition(".")
        siblings = self._messages[self._full(parent)].nested_type if parent else self.files[-1].message_type
        added = self._messages[self._full(path)] = siblings.add(name=name)
        for kind, field_name, number, *oneof in members:
            if ">" in kind:
                kind = self._add_map_entry(f"{path}.{field_name.title().replace('_', '')}Entry", kind)
            field = added.field.add(name=field_name, number=int(number))
            self._set_type(field, kind)
            if oneof:
                field.oneof_index = _index_of(added, oneof[0].removeprefix("@"))
        return added

    def _add_map_entry(self, path: str, kind: str) -> str:
        key, _, value = kind.partition(">")
        entry = self._add_message(path, [[key, "key", "1"], [value, "value", "2"]])
        entry.options.map_entry = True
        return f"*{path}"

    def _set_type(self, field: FieldDescriptorProto, kind: str) -> None:
        name = kind.removeprefix("*")
        optional = name == kind
        field.label = FieldDescriptorProto.LABEL_OPTIONAL if optional else FieldDescriptorProto.LABEL_REPEATED
        if name in _SCALARS:
            field.type = _SCALARS[name]
        else:
            field.type_name = self._full(name)
            self._named.append(field)


def _index_of(message: DescriptorProto, oneof: str) -> int:
    """Return the index of a oneof, which is added if it is new."""
    names = [each.name for each in message.oneof_decl]
    if oneof in names:
        return names.index(oneof)
    message.oneof_decl.add(name=oneof)
    return len(names)


def _make_pool() -> tuple[DescriptorPool, dict[str, FileDescriptorProto]]:
    pool = DescriptorPool()
    files: dict[str, FileDescriptorProto] = {}
    for imported in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    for table in TABLES:
        reader = _Reader()
        reader.read(table)
        for file in reader.files:
            pool.AddSerializedFile(file.SerializeToString())
            files |= {f"{file.package}.{service.name}": file for service in file.service}
    return pool, files


POOL, FILES = _make_pool()
"""The pool of all messages, and the files of services by the full name of the service."""


@cache
def message(name: str) -> Any:
    """Return the class of a message by its full name, such as ``inference.ModelInferRequest``.

    Raises:
        KeyError: if there is no such message.
    """
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


def parse(kind: Any, data: bytes) -> Any:
    """Return a message of a class from its bytes.

    Raises:
        BadRequest: if they are not one.
    """
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):  # the latter from protobuf without its extension in C
        name = kind.DESCRIPTOR.full_name
        raise BadRequest(f"the message of {plural(len(data), 'byte')} is not a valid {name}") from None


def make(name: str, /, **fields: Any) -> Message:
    """Return a message by its full name; fields may be dictionaries in place of messages, names of enums."""
    made: Message = message(name)(**fields)
    return made
