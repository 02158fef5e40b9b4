"""Server reflection: files by name and by symbol, and the questions that have no answer."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tests.gateway.grpc.fake_stream import FakeStream
from uncork_gateway.grpc.interfaces import Call, CallHead
from uncork_gateway.grpc.messages import POOL, SERVICES, message
from uncork_gateway.grpc.services.reflection import reflection_methods
from uncork_gateway.grpc.statuses import Code

VERSIONS = pytest.mark.parametrize("version", ["v1", "v1alpha"])


class Reflecting:
    """A client of reflection."""

    def __init__(self, version: str = "v1") -> None:
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo".encode()
        self.request: Any = message(f"grpc.reflection.{version}.ServerReflectionRequest")
        self._response: Any = message(f"grpc.reflection.{version}.ServerReflectionResponse")
        self.stream = FakeStream()
        self.call: Call = reflection_methods()[path](self.stream, CallHead(path))

    async def ask(self, **fields: Any) -> Any:
        """Send a question, and return the response."""
        request = self.request(host="h", **fields)
        self.call.message_received(request.SerializeToString())
        response = self._response.FromString(await self.stream.next())
        assert response.valid_host == "h"
        assert response.original_request == request
        return response

    async def files(self, **fields: Any) -> list[FileDescriptorProto]:
        """Send a question, and return the files in the response."""
        response = await self.ask(**fields)
        assert response.WhichOneof("message_response") == "file_descriptor_response", response
        found = response.file_descriptor_response.file_descriptor_proto
        return [FileDescriptorProto.FromString(one) for one in found]


@VERSIONS
async def test_the_services_are_listed(version: str) -> None:
    answer = await Reflecting(version).ask(list_services="")
    assert [one.name for one in answer.list_services_response.service] == sorted(SERVICES)


@VERSIONS
@pytest.mark.parametrize("service", SERVICES)
async def test_a_client_can_build_every_service(version: str, service: str) -> None:
    """The first file has the service, and the files are complete."""
    files = await Reflecting(version).files(file_containing_symbol=service)

    assert f"{files[0].package}.{files[0].service[0].name}" == service
    pool = DescriptorPool()
    for file in reversed(files):
        pool.Add(file)
    methods = pool.FindServiceByName(service).methods_by_name
    assert methods.keys() == POOL.FindServiceByName(service).methods_by_name.keys()
    assert all(method.input_type.fields is not None for method in methods.values())


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("inference.GRPCInferenceService", "grpc_service.proto"),
        ("inference.GRPCInferenceService.ModelInfer", "grpc_service.proto"),
        ("inference.ModelInferRequest", "grpc_service.proto"),
        ("inference.ModelInferRequest.InferInputTensor", "grpc_service.proto"),
        ("inference.ModelInferRequest.inputs", "grpc_service.proto"),
        ("inference.DataType", "model_config.proto"),
        ("google.protobuf.Any", "google/protobuf/any.proto"),
    ],
)
async def test_a_symbol_leads_to_its_file(symbol: str, file: str) -> None:
    client = Reflecting()
    by_symbol = await client.files(file_containing_symbol=symbol)
    assert by_symbol[0].name == file
    assert by_symbol == await client.files(file_by_filename=file)
    names = [one.name for one in by_symbol]
    assert len(set(names)) == len(names)
    assert {name for one in by_symbol for name in one.dependency} <= set(names)


@pytest.mark.parametrize(
    ("question", "code", "says"),
    [
        ({"file_by_filename": "x.proto"}, Code.NOT_FOUND, "unknown file 'x.proto'"),
        ({"file_containing_symbol": "inference.X"}, Code.NOT_FOUND, "unknown symbol 'inference.X'"),
        ({"file_containing_symbol": ""}, Code.NOT_FOUND, "unknown symbol ''"),
        (
            {"file_containing_symbol": "inference.GRPCInferenceService.X"},
            Code.NOT_FOUND,
            "unknown symbol 'inference.GRPCInferenceService.X'",
        ),
        (
            {"file_containing_extension": {"containing_type": "x.Y", "extension_number": 7}},
            Code.NOT_FOUND,
            "'x.Y' has no extension 7",
        ),
        ({"all_extension_numbers_of_type": "x.Y"}, Code.NOT_FOUND, "unknown message 'x.Y'"),
        ({}, Code.INVALID_ARGUMENT, "the request asks nothing; set one field of message_request"),
    ],
)
async def test_a_question_without_an_answer_does_not_end_the_call(
    question: dict[str, Any], code: Code, says: str
) -> None:
    client = Reflecting()
    error = (await client.ask(**question)).error_response
    assert (error.error_code, error.error_message) == (code, says)
    assert (await client.ask(list_services="*")).list_services_response.service
    assert client.stream.code is None


async def test_messages_have_no_extensions() -> None:
    name = "inference.ModelInferRequest"
    answer = (await Reflecting().ask(all_extension_numbers_of_type=name)).all_extension_numbers_response
    assert answer.base_type_name == name
    assert not answer.extension_number


async def test_the_call_ends_with_the_client_s_last_message() -> None:
    client = Reflecting()
    await client.ask(list_services="")
    client.call.end_received()
    assert await client.stream.end() is Code.OK
