"""An API route with a real dispatcher, a scripted runner, and a clock that tests can set."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from tests.dispatcher.shell import shell_of
from tests.gateway.client import JSON, Client, Reply, Server
from tests.gateway.exposed import registry_of
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchResult, TaskRunner, jobs
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.codecs import Codec, Grouping, Marshalled, make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.api_route import ApiRequest, ApiRoute
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.telemetry.metrics import Metrics

# Release at once: cork may hold a request in real time, until after the end of the test.
RULES = ApiRules(name="echo", policy="fixed:0")
LIMIT_BYTES = 100


class Runner:
    """Answers every request with its own body once the gate is open, or as the test says."""

    def __init__(self) -> None:
        self.jobs: list[Batch[Any]] = []
        self.batches: list[list[bytes]] = []
        """The bodies of each executed batch."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.reply: Callable[[bytes], HandlerResult] = lambda body: HandlerResult(200, body)
        self.error: Exception | None = None

    async def __call__(self, job: Batch[Any]) -> BatchResult[HandlerResult]:
        self.jobs.append(job)
        self.batches.append([asked.body for asked in payloads_of(job)])
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return BatchResult([self.reply(asked.body) for asked in payloads_of(job)])


class Stage:
    """An API route with all that it needs."""

    def __init__(
        self,
        *,
        input: dict[str, Any] | None = None,
        cost: float | str | None = None,
        codec: Codec | None = None,
        dialect: Dialect | None = None,
        rules: ApiRules = RULES,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        fair_by: bytes | None = None,
        grouping: Grouping | None = None,
        kind: type[ApiRequest] | None = None,
        runner: jobs.Runner[Marshalled, HandlerResult] | None = None,
    ) -> None:
        self.runner = Runner()
        self.metrics = Metrics()
        self.dispatcher: AsyncDispatcher[Marshalled, HandlerResult] = shell_of(
            runner or TaskRunner(self.runner), observers=(self.metrics,), clock=clock
        )
        self.dispatcher.set_api(rules)
        for worker in range(workers):
            self.dispatcher.worker_ready(worker)
        self.route = ApiRoute(
            "echo",
            kind=kind,
            dialect=dialect or Native(codec or make_codec(input or {"kind": "json"}, cost)),
            dispatcher=self.dispatcher,
            tally=self.metrics.api("echo"),
            max_body_bytes=LIMIT_BYTES,
            batch_headers=BatchHeaders("gateway"),
            contract=1,
            fair_by=fair_by,
            grouping=grouping,
        )
        self.server = Server({b"/": self.route})

    def post(self, client: Client) -> asyncio.Task[Reply | None]:
        """Send a client's request in a task of its own."""
        return asyncio.create_task(client.ask(self.server))

    async def reply(self, *pieces: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> Reply:
        reply = await self.post(Client(*pieces, headers=[JSON] if headers is None else headers))
        assert reply is not None
        return reply

    def counted(self, status: int) -> float | None:
        labels = {"api": "echo", "protocol": "http", "status": str(status)}
        return registry_of(self.metrics).get_sample_value("uncork_requests_total", labels)


def detail(reply: Reply, status: int) -> str:
    """Return the detail of a problem document; fail if the reply is not one of that status."""
    document = json.loads(reply.body)
    assert (reply.status, document["status"]) == (status, status)
    assert reply.headers["content-type"] == "application/problem+json"
    assert document["request_id"] == reply.headers["x-request-id"]
    text: str = document["detail"]
    return text


def reason(reply: Reply) -> str | None:
    """Return the reason in a problem document; None if the reply is not a refusal."""
    text: str | None = json.loads(reply.body).get("reason")
    return text
