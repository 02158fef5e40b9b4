"""Calls of a gateway's methods without a connection: the gateway is real, its workers are fake."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.gateway.fake_worker import FakeWorker
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.grpc.fake_stream import FakeConnection, FakeStream, opened
from tests.gateway.running import turns
from uncork_gateway.grpc.interfaces import Call
from uncork_gateway.grpc.messages import message
from uncork_gateway.headers import Header
from uncork_workers.wire.schema import ServiceDescription

INFER = b"/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = b"/inference.GRPCInferenceService/ModelStreamInfer"
PREDICT = b"/tensorflow.serving.PredictionService/Predict"
InferRequest = message("inference.ModelInferRequest")
InferResponse = message("inference.ModelInferResponse")
StreamResponse = message("inference.ModelStreamInferResponse")


class CallStage:
    """A gateway with one worker, and calls to it."""

    def __init__(self, on: GatewayStage, worker: FakeWorker) -> None:
        self.on = on
        self.worker = worker

    def open(
        self, path: bytes, *, connection: FakeConnection | None = None, **head: Any
    ) -> tuple[Call, FakeStream]:
        stream = FakeStream(connection=connection or FakeConnection())
        return opened(self.on.gateway.front_end, path, stream, **head)

    def ask(self, *messages: bytes, path: bytes = INFER, **head: Any) -> tuple[Call, FakeStream]:
        """Open a call, and send all its messages."""
        call, stream = self.open(path, **head)
        for each in messages:
            call.message_received(each)
        call.end_received()
        return call, stream

    async def answer(self, *bodies: bytes) -> None:
        """Let the worker answer the next batch, whose requests get these bodies."""
        batch, _ = await self.worker.batch()
        self.worker.answer(batch, bodies)

    def counted(self, status: int, *, api: str = "echo") -> float | None:
        """Return how many calls were answered with a status."""
        labels = {
            "service": self.on.service.batching.name,
            "api": api,
            "protocol": "grpc",
            "status": str(status),
        }
        return self.on.gateway.front_end.exposition.registry.get_sample_value("uncork_requests_total", labels)


@contextlib.asynccontextmanager
async def calls(
    folder: Path, serves: ServiceDescription | None = None, **settings: Any
) -> AsyncIterator[CallStage]:
    async with gateway(folder, grpc=True, **settings) as on:
        worker = await on.worker(serves=serves)
        await turns()
        yield CallStage(on, worker)


def numbers(*values: int, model: str = "fake", request_id: str = "", **more: Any) -> bytes:
    """A ModelInferRequest with a row for each number."""
    request = InferRequest(model_name=model, id=request_id, **more)
    request.inputs.add(name="x", datatype="INT64", shape=[len(values)]).contents.int64_contents.extend(values)
    written: bytes = request.SerializeToString()
    return written


def raw(*values: int) -> bytes:
    """The rows of :func:`numbers` as a worker gets them."""
    return b"".join(value.to_bytes(8, "little") for value in values)


def values(response: bytes) -> list[int]:
    return list(InferResponse.FromString(response).outputs[0].contents.int64_contents)


def trailer(trailers: Sequence[Header], name: bytes) -> bytes | None:
    """The value of a trailer; None if it is missing."""
    return dict(trailers).get(name)
