"""The well-behaved clients of gRPC: a library's channels, each with many calls at the same time."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import grpc.aio

from benchmarks.chaos.faults import Fault
from benchmarks.chaos.grpc.calls import PATHS, STREAM_INFER, reply_in_stream, reply_of
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.questions import Question
from uncork_gateway.grpc.statuses import Code
from uncork_loadtests.servers import HOST

Asked = tuple[Question, Fault | None]
_CHANNELS = 8
# Otherwise channels to the same server share a connection. A server that is back must be found at once.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000)]

# What grpcio itself reports, rarely, for a call whose connection closes.
_OF_THE_LIBRARY = "Internal error from Core"


class Channels:
    """Connections that enter their calls in the ledger."""

    def __init__(self, ledger: Ledger, *, port: int, seed: int) -> None:
        self._ledger = ledger
        self._port = port
        self._random = Random(seed)
        self._channels: list[grpc.aio.Channel] = []
        self._calls: set[asyncio.Task[None]] = set()

    def ask(self, asked: Sequence[Asked]) -> None:
        """Send one call: with one question, or a stream of some."""
        if not self._channels:
            target = f"{HOST}:{self._port}"
            self._channels = [grpc.aio.insecure_channel(target, options=_OPTIONS) for _ in range(_CHANNELS)]
        channel = self._random.choice(self._channels)
        for question, own in asked:
            self._ledger.send(question, time.monotonic(), own=own)
        questions = [question for question, _ in asked]
        is_stream = questions[0].kind == STREAM_INFER
        call = self._stream(channel, questions) if is_stream else self._unary(channel, questions[0])
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """Close all connections; outstanding calls count as left by the client."""
        channels, self._channels = self._channels, []
        for task in list(self._calls):
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await asyncio.gather(*[channel.close() for channel in channels])

    async def _unary(self, channel: grpc.aio.Channel, question: Question) -> None:
        try:
            method: Any = channel.unary_unary(PATHS[question.kind])
            body = await method(question.request) or b""  # None without a message
            self._ledger.answer(question.number, reply_of(Code.OK, "", body, {}), time.monotonic())
        except grpc.aio.AioRpcError as error:
            self._failed(question, error)
        except asyncio.CancelledError:
            self._ledger.leave(question.number)
            raise

    async def _stream(self, channel: grpc.aio.Channel, questions: Sequence[Question]) -> None:
        """Send all questions of a stream; the answers must come in the same order."""
        left = list(questions)
        try:
            method: Any = channel.stream_stream(PATHS[STREAM_INFER])
            async for body in method(iter([each.request for each in questions])):
                if not left:
                    self._ledger.garble(questions[-1].number, "more answers than questions in a stream")
                    return
                self._ledger.answer(left.pop(0).number, reply_in_stream(body), time.monotonic())
            for question in left:
                how = "the stream ended without an answer"
                self._ledger.close(question.number, time.monotonic(), how=how)
        except grpc.aio.AioRpcError as error:
            for question in left:
                self._failed(question, error)
        except asyncio.CancelledError:
            for question in left:
                self._ledger.leave(question.number)
            raise

    def _failed(self, question: Question, error: grpc.aio.AioRpcError) -> None:
        """Enter an error of the gateway, or the library's own, which means that there was no answer."""
        trailers = {name: str(value) for name, value in error.trailing_metadata()}
        code, text = Code(error.code().value[0]), error.details() or ""
        reply = reply_of(code, text, b"", trailers)
        if text == _OF_THE_LIBRARY or (code == Code.UNAVAILABLE and reply.retry_after_s is None):
            self._ledger.close(
                question.number,
                time.monotonic(),
                how=f"no answer: {text}",
                connected=not text.startswith("failed to connect"),
            )
        else:
            self._ledger.answer(question.number, reply, time.monotonic())
