"""The gRPC services of a gateway with fake workers, called without a connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.grpc.fake_stream import FakeStream, opened
from uncork_gateway.grpc.interfaces import Call
from uncork_gateway.grpc.messages import POOL, message
from uncork_gateway.grpc.statuses import Code

INFERENCE = "/inference.GRPCInferenceService/"
PREDICTION = "/tensorflow.serving.PredictionService/"
MODEL = "/tensorflow.serving.ModelService/"


def _method(path: str) -> Any:
    service, _, name = path.removeprefix("/").rpartition("/")
    return POOL.FindServiceByName(service).methods_by_name[name]


def response_of(path: str) -> Any:
    """Return the class of a method's response."""
    return message(_method(path).output_type.full_name)


class ServicesStage:
    """A gateway and its gRPC services. ``on`` is the gateway's stage."""

    def __init__(self, on: GatewayStage) -> None:
        self.on = on

    def open(self, path: str) -> tuple[Call, FakeStream]:
        return opened(self.on.gateway.front_end, path.encode())

    def _call(self, path: str, **fields: Any) -> FakeStream:
        call, stream = self.open(path)
        request = message(_method(path).input_type.full_name)
        call.message_received(request(**fields).SerializeToString())
        return stream

    def ask(self, path: str, **fields: Any) -> Any:
        """Call a unary method, and return its response."""
        stream = self._call(path, **fields)
        assert stream.code is Code.OK, stream.text
        return response_of(path).FromString(stream.messages[0])

    def refusal(self, path: str, code: Code, **fields: Any) -> str:
        """Return the text of the error of a unary call; fail if it has another code."""
        stream = self._call(path, **fields)
        assert (stream.code, stream.messages) == (code, [])
        return stream.text

    async def page(self, path: str, kind: Any) -> Any:
        """Return a page of the HTTP interface as a message; fail if its JSON is not a form of one."""
        reply = await self.on.http.get(path)
        assert reply.status_code == 200, reply.text
        return ParseDict(reply.json(), kind())


@contextlib.asynccontextmanager
async def services(folder: Path, **settings: Any) -> AsyncIterator[ServicesStage]:
    """The gRPC services of a gateway on a socket in a folder."""
    async with gateway(folder, grpc=True, **settings) as on:
        yield ServicesStage(on)
