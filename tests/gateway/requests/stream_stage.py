"""A streaming route with a real dispatcher; the test acts as the worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tests.dispatcher.shell import shell_of
from tests.gateway.client import Connection, Server, request
from tests.gateway.exposed import registry_of
from tests.gateway.running import turns
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchResult, OnBatchEnd
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import Native
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.stream_route import StreamRequest
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.messages import AnswerHead

TEXT = AnswerHead(status=200, content_type="text/plain")
LIMIT_BYTES = 100


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


class StreamStage:
    """The route, and the requests at its workers."""

    def __init__(self, *, workers: int = 1) -> None:
        self.running: list[Streaming] = []
        self.metrics = Metrics()
        dispatcher: AsyncDispatcher[Marshalled, HandlerResult] = shell_of(self, observers=(self.metrics,))
        rules = ApiRules(name="tell", policy="none", idempotent=False, timeout_s=60)
        dispatcher.set_api(rules)
        for worker in range(workers):
            dispatcher.worker_ready(worker)
        route = ApiRoute(
            "tell",
            kind=StreamRequest,
            dialect=Native(make_codec({"kind": "json"})),
            dispatcher=dispatcher,
            tally=self.metrics.api("tell"),
            max_body_bytes=LIMIT_BYTES,
            batch_headers=BatchHeaders("gateway"),
            contract=1,
        )
        self.server = Server({b"/": route})

    async def ask(
        self, body: bytes = b"1", *, head: Sequence[tuple[bytes, bytes]] = (), version: bytes = b"1.1"
    ) -> tuple[Connection, Streaming]:
        connection = Connection(self.server)
        connection.send(request(body, headers=head).replace(b"HTTP/1.1", b"HTTP/" + version, 1))
        await turns()
        return connection, self.running[-1]

    def counted(self, status: int) -> float | None:
        labels = {"api": "tell", "protocol": "http", "status": str(status)}
        return registry_of(self.metrics).get_sample_value("uncork_requests_total", labels)

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
