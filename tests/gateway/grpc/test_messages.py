"""The definitions of gRPC messages against those that other packages ship."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import POOL, SERVICES, message, parse
from uncork_gateway.grpc.protocols.values import varint

ROOT = Path(__file__).parents[3]
DEFINITIONS = "gateway/uncork_gateway/grpc/messages.binpb"
# Modules that register the definitions in protobuf's default pool.
TRITON, HEALTH, REFLECTION = (
    "tritonclient.grpc.service_pb2",
    "grpc_health.v1.health_pb2",
    "grpc_reflection.v1alpha.reflection_pb2",
)
TENSORFLOW = [
    f"ovmsclient.tfs_compat.protos.{name}_pb2"
    for name in (
        "tensorflow_serving.apis.prediction_service",
        "tensorflow_serving.apis.model_service",
    )
]
# Of these the gateway knows a part: fields, values or methods that it neither reads nor writes are missing.
PARTIAL = {
    "inference.GRPCInferenceService",
    "inference.ModelConfig",
    "inference.ModelDynamicBatching",
    "inference.ModelInput",
    "inference.ModelOutput",
    "inference.ModelStatistics",
    "tensorflow.DataType",
    "tensorflow.TensorInfo",
    "tensorflow.TensorProto",
    "tensorflow.error.Code",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}

Facts = dict[str, dict[str, Any]]


def facts(pool: Any, *names: str, renamed: tuple[str, str] = ("", "")) -> Facts:
    """What messages, enums and services have, by their full names, in files and those that they import.

    A field is its number, type, label and oneof. ``renamed`` is a part of packages and its replacement.
    """

    def full(name: str) -> str:
        return name.removeprefix(".").replace(*renamed, 1)

    known: Facts = {}
    files = [pool.FindFileByName(name) for name in names]
    messages: list[Any] = []
    enums: list[Any] = []
    for file in files:  # the list grows
        files += [each for each in file.dependencies if each not in files]
        assert FileDescriptorProto.FromString(file.serialized_pb).syntax == "proto3"
        messages += file.message_types_by_name.values()
        enums += file.enum_types_by_name.values()
        for service in file.services_by_name.values():
            known[full(service.full_name)] = {
                method.name: (
                    full(method.input_type.full_name),
                    full(method.output_type.full_name),
                    method.client_streaming,
                    method.server_streaming,
                )
                for method in service.methods
            }
    for kind in messages:  # the list grows
        messages += kind.nested_types
        enums += kind.enum_types
        proto = DescriptorProto()
        kind.CopyToProto(proto)
        known[full(kind.full_name)] = {
            field.name: (
                field.number,
                field.type,
                full(field.type_name),
                field.label,
                proto.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
                field.options.packed if field.options.HasField("packed") else True,
                proto.options.map_entry,
            )
            for field in proto.field
        }
    for enum in enums:
        known[full(enum.full_name)] = {value.name: value.number for value in enum.values}
    return known


def ours(prefix: str) -> Facts:
    """The facts of the services whose names begin so."""
    services = [service for service in SERVICES if service.startswith(prefix)]
    names = [POOL.FindServiceByName(service).file.name for service in services]
    assert names
    return facts(POOL, *names)


def theirs(*modules: str, renamed: tuple[str, str] = ("", "")) -> Facts:
    """Return the facts of the protocol files behind generated modules."""
    names = [import_module(module).DESCRIPTOR.name for module in modules]
    return facts(descriptor_pool.Default(), *names, renamed=renamed)


def assert_same(own: Facts, other: Facts) -> None:
    for name, members in own.items():
        if name in PARTIAL:
            assert members.items() <= other[name].items(), name
            assert members != other[name], f"{name} is not partial"
        else:
            assert members == other[name], name


def test_the_definitions_are_compiled(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    compiled = tmp_path / "messages.binpb"

    # With the compiler of this environment, wherever it is.
    environment = {**os.environ, "VENV": sys.prefix}
    subprocess.run([ROOT / "scripts/build", "messages", compiled], check=True, env=environment)

    committed = ROOT / DEFINITIONS
    assert compiled.read_bytes() == committed.read_bytes(), "run scripts/build messages"


def test_inference_is_what_tritons_client_has() -> None:
    assert_same(ours("inference."), theirs(TRITON))


def test_health_is_what_grpcs_own_package_has() -> None:
    assert ours("grpc.health.") == theirs(HEALTH)


def test_reflection_is_what_grpcs_own_package_has() -> None:
    """Its two versions differ only in their names."""
    assert ours("grpc.reflection.v1alpha.") == theirs(REFLECTION)
    assert ours("grpc.reflection.v1.") == theirs(REFLECTION, renamed=("v1alpha", "v1"))


def test_tensorflow_is_what_openvinos_client_has() -> None:
    assert_same(ours("tensorflow."), theirs(*TENSORFLOW, renamed=("ovmsclient", "tensorflow")))


def test_nothing_is_registered_in_the_default_pool() -> None:
    """Triton's client must be importable beside the gateway, in any order, and so must others' stubs."""
    defined = FileDescriptorSet.FromString((ROOT / DEFINITIONS).read_bytes()).file
    code = f"""
from google.protobuf import descriptor_pool
import uncork_gateway.grpc.messages
for name in {[file.name for file in defined]}:
    try:
        descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        pass
    else:
        raise AssertionError(name)
"""

    subprocess.run([sys.executable, "-c", code], check=True)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


LARGE = 2**20
REQUEST = message("inference.ModelInferRequest")


@pytest.mark.parametrize(
    "content",
    [
        field(5, field(1, b"12345678")) * 100_000,
        field(5, field(4, b"") * LARGE),
        field(5, field(3, b"\x80\x01" * LARGE)),
        field(5, field(5, field(3, bytes(LARGE)) * 2)),
        field(5, field(5, field(8, b"") * LARGE)),
        field(7, b"") * LARGE,
        b"\x98\x06\x01" * LARGE,
        b"\x9b\x06\x9c\x06" * LARGE,
    ],
    ids=["messages", "in one", "packed numbers", "in several", "texts", "bytes", "unknown", "groups"],
)
def test_more_fields_than_any_request_has_are_not_parsed(content: bytes) -> None:
    """Parsed fields may take 72 times their bytes in memory."""
    with pytest.raises(BadRequest, match="a message may have at most 1000000 fields and integers"):
        parse(REQUEST, content)


@pytest.mark.parametrize(
    "content",
    [
        field(7, b"\x01" * 4 * LARGE),
        field(5, field(5, field(6, b"\x01" * 3 * LARGE))),
        field(5, field(5, field(8, b"x") * 900_000)),
        field(5, field(5, field(3, b"\x80\x80\x01" * 900_000))),
        field(200, b"\x01" * 2 * LARGE) + b"\x09" + bytes(8) + b"\x0d" + bytes(4),
    ],
    ids=["raw", "floats", "texts", "packed numbers", "unknown"],
)
def test_large_messages_of_fewer_fields_are_parsed(content: bytes) -> None:
    assert parse(REQUEST, content) == REQUEST.FromString(content)


@pytest.mark.parametrize("end", [b"\x80", b"\x98" + b"\x80" * 20, b"\x3a\x05x", b"\x0e"])
def test_large_messages_that_are_broken_are_refused(end: bytes) -> None:
    with pytest.raises(BadRequest, match=r"is not a valid inference\.ModelInferRequest"):
        parse(REQUEST, field(7, bytes(LARGE)) + end)
