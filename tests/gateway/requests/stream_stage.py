"""A streaming route with a real dispatcher; the test acts as the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from tests.gateway.client import Connection, request
from tests.gateway.running import turns
from tests.gateway.stage import Stage
from uncork_dispatcher import ApiRules, BatchResult, OnBatchEnd
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.stream_route import StreamRequest
from uncork_workers.wire.messages import AnswerHead

TEXT = AnswerHead(status=200, content_type="text/plain")


class Streaming:
    """One request at its worker."""

    def __init__(self, job: Batch[Any], ended: OnBatchEnd[HandlerResult]) -> None:
        self.body = payloads_of(job)[0].body
        self.cancelled = 0
        self.number = job.number
        self._sink = payloads_of(job)[0].sink
        self._ended = ended
        self._has_begun = False

    def started(self) -> None:
        """Start the batch, as the gateway does when a worker has it."""
        assert self._sink is not None
        self._sink.started(self.number)

    def send(self, *pieces: bytes, head: AnswerHead = TEXT) -> None:
        assert self._sink is not None
        for piece in pieces:
            self._sink.piece(None if self._has_begun else head, piece)
            self._has_begun = True

    def end(self, status: int = 200, body: bytes = b"") -> None:
        self._ended(BatchResult([HandlerResult(status, body)], "failed"))

    def fail(self, error: Exception) -> None:
        """End the batch otherwise, for example by losing the worker."""
        self._ended(error)


class StreamStage(Stage):
    """The route, and the requests at its workers."""

    def __init__(self, *, workers: int = 1) -> None:
        self.running: list[Streaming] = []
        rules = ApiRules(name="echo", policy="none", idempotent=False, timeout_s=60)
        clock = asyncio.get_running_loop().time
        super().__init__(rules=rules, workers=workers, clock=clock, kind=StreamRequest, runner=self)

    async def ask(
        self, body: bytes = b"1", *, head: Sequence[tuple[bytes, bytes]] = (), version: bytes = b"1.1"
    ) -> tuple[Connection, Streaming]:
        connection = Connection(self.server)
        connection.send(request(body, headers=head).replace(b"HTTP/1.1", b"HTTP/" + version, 1))
        await turns()
        return connection, self.running[-1]

    # The dispatcher's runner

    def start(self, job: Batch[Any], ended: OnBatchEnd[HandlerResult]) -> None:
        """Pass the batch to the test."""
        streaming = Streaming(job, ended)
        self.running.append(streaming)
        streaming.started()

    def abandon(self, batch: int, worker: int) -> None:
        """Ignore a cancellation."""

    def cancel(self, batch: Batch[Any], requests: Collection[Any]) -> None:
        """Count the cancellations of each request."""
        for streaming in self.running:
            streaming.cancelled += streaming.number == batch.number
