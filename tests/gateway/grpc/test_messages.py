"""The definitions of gRPC messages against those that other packages ship."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import POOL, SERVICES, message, parse
from uncork_gateway.grpc.protocols.values import varint

ROOT = Path(__file__).parents[3]
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


def files(pool: Any, *names: str) -> Iterator[FileDescriptorProto]:
    """The files of these names and those that they import, each once."""
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = FileDescriptorProto.FromString(pool.FindFileByName(name).serialized_pb)
        waiting += file.dependency
        yield file


def facts(found: Iterator[FileDescriptorProto], renamed: tuple[str, str] = ("", "")) -> Facts:
    """What messages, enums and services have, by their full names.

    A field is its number, type, label and oneof. ``renamed`` is a part of packages and its replacement.
    """

    def full(name: str) -> str:
        return name.removeprefix(".").replace(*renamed, 1)

    known: Facts = {}

    def add_enum(scope: str, enum: Any) -> None:
        known[f"{scope}.{enum.name}"] = {value.name: value.number for value in enum.value}

    def add_message(scope: str, each: Any) -> None:
        name = f"{scope}.{each.name}"
        known[name] = {
            field.name: (
                field.number,
                field.type,
                full(field.type_name),
                field.label,
                each.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
                field.options.packed if field.options.HasField("packed") else True,
                each.options.map_entry,
            )
            for field in each.field
        }
        for nested in each.nested_type:
            add_message(name, nested)
        for enum in each.enum_type:
            add_enum(name, enum)

    for file in found:
        assert file.syntax == "proto3"
        package = full(file.package)
        for each in file.message_type:
            add_message(package, each)
        for enum in file.enum_type:
            add_enum(package, enum)
        for service in file.service:
            known[f"{package}.{service.name}"] = {
                method.name: (
                    full(method.input_type),
                    full(method.output_type),
                    method.client_streaming,
                    method.server_streaming,
                )
                for method in service.method
            }
    return known


def file_of(service: str) -> str:
    name: str = POOL.FindServiceByName(service).file.name
    return name


def ours(prefix: str) -> Facts:
    """The facts of the services whose names begin so."""
    names = [file_of(service) for service in SERVICES if service.startswith(prefix)]
    assert names
    return facts(files(POOL, *names))


def of_modules(*modules: str) -> Iterator[FileDescriptorProto]:
    names = [import_module(module).DESCRIPTOR.name for module in modules]
    return files(descriptor_pool.Default(), *names)


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

    committed = ROOT / "gateway/uncork_gateway/grpc/messages.binpb"
    assert compiled.read_bytes() == committed.read_bytes(), "run scripts/build messages"


def test_inference_is_what_tritons_client_has() -> None:
    assert_same(ours("inference."), facts(of_modules(TRITON)))


def test_health_is_what_grpcs_own_package_has() -> None:
    assert ours("grpc.health.") == facts(of_modules(HEALTH))


def test_reflection_is_what_grpcs_own_package_has() -> None:
    """Its two versions differ only in their names."""
    other = of_modules(REFLECTION)

    assert ours("grpc.reflection.v1alpha.") == facts(other)
    assert ours("grpc.reflection.v1.") == facts(of_modules(REFLECTION), ("v1alpha", "v1"))


def test_tensorflow_is_what_openvinos_client_has() -> None:
    assert_same(ours("tensorflow."), facts(of_modules(*TENSORFLOW), ("ovmsclient", "tensorflow")))


def test_nothing_is_registered_in_the_default_pool() -> None:
    """Triton's client must be importable beside the gateway, in any order, and so must others' stubs."""
    names = sorted({file.name for service in SERVICES for file in files(POOL, file_of(service))})
    code = f"""
from google.protobuf import descriptor_pool
import uncork_gateway.grpc.messages
for name in {[name for name in names if not name.startswith("google/")]}:
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
