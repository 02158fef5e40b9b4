"""The gRPC services of a gateway with fake workers, called without a connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.grpc.fake_stream import FakeStream
from uncork_gateway.grpc.interfaces import Call, CallHead, Method
from uncork_gateway.grpc.messages import POOL, message
from uncork_gateway.grpc.service import model_methods
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.streaming import OpenCalls
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.repository import RepositoryAccess

INFERENCE = "/inference.GRPCInferenceService/"
PREDICTION = "/tensorflow.serving.PredictionService/"
MODEL = "/tensorflow.serving.ModelService/"


def response_of(path: str) -> Any:
    """Return the class of a method's response."""
    service, _, method = path.removeprefix("/").rpartition("/")
    return message(POOL.FindServiceByName(service).methods_by_name[method].output_type.full_name)


def called(methods: Mapping[bytes, Method], path: str, **fields: Any) -> FakeStream:
    """Call a unary method, and return the stream of the call."""
    service, _, name = path.removeprefix("/").rpartition("/")
    request = message(POOL.FindServiceByName(service).methods_by_name[name].input_type.full_name)
    stream = FakeStream()
    call = methods[path.encode()].open(stream, CallHead(path.encode()))
    call.message_received(request(**fields).SerializeToString())
    return stream


def asked(methods: Mapping[bytes, Method], path: str, **fields: Any) -> Any:
    """Call a unary method, and return its response."""
    stream = called(methods, path, **fields)
    assert stream.code is Code.OK, stream.text
    return response_of(path).FromString(stream.messages[0])


class ServicesStage:
    """A gateway and its gRPC services. ``on`` is the gateway's stage."""

    def __init__(self, on: GatewayStage, *, statistics: bool) -> None:
        self.on = on
        grpc = on.gateway.catalogue.grpc
        assert grpc is not None
        access = RepositoryAccess(lambda: on.gateway.repository, is_allowed=lambda: True)
        self.calls = OpenCalls()
        self.methods = model_methods(
            Models(lambda: grpc.models, on.gateway.missing),
            access,
            self.calls,
            unready=on.gateway.front_end.unready,
            readiness=on.gateway.front_end.readiness,
            statistics=statistics,
        )

    def ask(self, path: str, **fields: Any) -> Any:
        """Call a unary method."""
        return asked(self.methods, path, **fields)

    def refusal(self, path: str, code: Code, **fields: Any) -> str:
        """Return the text of the error of a unary call; fail if it has another code."""
        stream = called(self.methods, path, **fields)
        assert (stream.code, stream.messages) == (code, [])
        return stream.text

    def open(self, path: str) -> tuple[Call, FakeStream]:
        stream = FakeStream()
        return self.methods[path.encode()].open(stream, CallHead(path.encode())), stream

    async def page(self, path: str, kind: Any) -> Any:
        """Return a page of the HTTP interface as a message; fail if its JSON is not a form of one."""
        reply = await self.on.http.get(path)
        assert reply.status_code == 200, reply.text
        return ParseDict(reply.json(), kind())


@contextlib.asynccontextmanager
async def services(folder: Path, *, statistics: bool = True, **settings: Any) -> AsyncIterator[ServicesStage]:
    """The gRPC services of a gateway on a socket in a folder."""
    async with gateway(folder, grpc=True, **settings) as on:
        yield ServicesStage(on, statistics=statistics)
