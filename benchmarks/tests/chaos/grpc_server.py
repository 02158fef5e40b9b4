"""A gRPC listener on a real socket whose calls answer as a test says."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.chaos.grpc.calls import PREDICT, STREAM_INFER
from benchmarks.chaos.questions import Row, right_answer
from benchmarks.chaos.stage import MAX_BODY_BYTES
from benchmarks.chaos.waiting import comes_true
from tests.gateway.grpc.http2.peer import EchoCall, Server
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc import infer_stream
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.messages import make, message, parse
from uncork_gateway.grpc.statuses import Code


class ScriptedCall(EchoCall):
    """A call that answers each message as a test says: at once in a stream, otherwise at the end."""

    def __init__(self, stream: CallStream, head: CallHead, answer: Answer) -> None:
        super().__init__(stream, head)
        self._answer = answer

    @property
    def kind(self) -> str:
        return self.head.path.decode("latin-1").rpartition("/")[2]

    def message_received(self, message: bytes) -> None:
        self.events.append(message)
        if self.kind == STREAM_INFER:
            self._answer(self, message)

    def end_received(self) -> None:
        if self.kind == STREAM_INFER:
            self.stream.finish(Code.OK)
        else:
            self._answer(self, self.events[-1] if self.events else b"")

    def reply(self, body: bytes) -> None:
        if self.kind == STREAM_INFER:
            self.stream.send(infer_stream.of_answer(body))
        else:
            self.stream.reply(body, ())


Answer = Callable[[ScriptedCall, bytes], object]


def answer_rightly(call: ScriptedCall, body: bytes) -> None:
    try:
        call.reply(right(call.kind, body))
    except GatewayError as error:
        call.finish(error)


def right(kind: str, body: bytes) -> bytes:
    if kind == PREDICT:
        request = parse(message("tensorflow.serving.PredictRequest"), body)
        inputs = request.inputs
        columns = inputs["number"].int64_val, inputs["pad"].string_val
        texts = _texts(*columns)
        output = {"dtype": "DT_STRING", "string_val": texts}
        return make("tensorflow.serving.PredictResponse", outputs={"output-0": output}).SerializeToString()
    request = parse(message("inference.ModelInferRequest"), body)
    contents = {tensor.name: tensor.contents for tensor in request.inputs}
    texts = _texts(contents["number"].int64_contents, contents["pad"].bytes_contents)
    output = {"name": "output-0", "contents": {"bytes_contents": texts}}  # type: ignore[dict-item]
    return make("inference.ModelInferResponse", outputs=[output]).SerializeToString()


def _texts(numbers: Any, pads: Any) -> list[bytes]:
    rows = [Row(number=number, pad=pad.decode()) for number, pad in zip(numbers, pads, strict=True)]
    return [right_answer(row).encode() for row in rows]


@asynccontextmanager
async def scripted(answer: Answer) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port."""
    limits = GrpcLimits(max_message_bytes=MAX_BODY_BYTES, max_unsent_bytes=MAX_BODY_BYTES)
    server = Server(limits=limits, make_call=lambda stream, head: ScriptedCall(stream, head, answer))
    listener = socket.create_server(("127.0.0.1", 0))
    await server.listener.start(listener)
    try:
        yield listener.getsockname()[1]
    finally:
        server.listener.close()
        await comes_true(lambda: not server.listener.connections)
