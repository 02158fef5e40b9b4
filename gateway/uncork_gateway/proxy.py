"""The batching proxy: puts the dispatcher in front of model servers that are not ours."""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from starlette.responses import Response
from starlette.routing import Mount

from uncork_dispatcher import ApiRules, AsyncDispatcher
from uncork_gateway.backends.http_servers import HttpServers
from uncork_gateway.backends.known_models import UNKNOWN, KnownModels
from uncork_gateway.backends.merged_calls import MergedCalls, Outcome, Sent
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import path_of
from uncork_gateway.pages.health import Pages
from uncork_gateway.pages.status.formatting import PROXY
from uncork_gateway.pages.status.places import Place
from uncork_gateway.pages.status.recorder import Recorder
from uncork_gateway.pages.status.status_builder import Board, Shown
from uncork_gateway.protocols.rows import RowsWire, error_body
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Wire
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.requests.pass_through import PassThrough
from uncork_gateway.requests.proxy_route import HeaderRules, MergedRoute
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.metrics import LiveState, Metrics

Protocol = Literal["auto", "v1", "v2", "tfserving"]

# Without a goal nothing is refused by prediction; a day is far, and can be added to any time.
_NO_GOAL_S = 86_400.0
_LONGEST_NAME = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxySettings(ServerSettings):
    """How requests are batched; the defaults are those of KServe's documents.

    Attributes:
        protocol: what clients and servers speak; ``auto`` tells by the path.
        max_batch_rows: most rows in a call; a request with more is cut.
        max_hold_s: longest time that a request is held while a server is idle.
        goal_s: when a request should be answered; one that cannot be is refused. None: no goal.
        timeout_s: longest time that a call may take.
        policy: when to release a call.
        concurrency: calls that one server runs at a time.
        idempotent: whether a call that broke or failed may be made again, whole or in parts.
        health_path: what a healthy server answers with 2xx; None: it takes connections.
        headers: what becomes of the headers of requests that are merged.
    """

    protocol: Protocol = "auto"
    max_batch_rows: int = 32
    max_hold_s: float = 0.5
    goal_s: float | None = None
    timeout_s: float = 60.0
    policy: str = "cork"
    concurrency: int = 1
    idempotent: bool = True
    health_path: str | None = None
    headers: HeaderRules = field(default_factory=HeaderRules)

    @property
    def most_rows_of_part(self) -> int:
        """What a larger request is cut into. Who wants no batches wants requests as they are."""
        return sys.maxsize if self.policy == "none" else self.max_batch_rows

    def rules(self, model: str) -> ApiRules:
        """The same, as the dispatcher has it.

        Raises:
            ValueError: if a value is out of range.
        """
        return ApiRules(
            name=model,
            goal_s=_NO_GOAL_S if self.goal_s is None else self.goal_s,
            max_batch_rows=self.max_batch_rows,
            policy=self.policy,
            max_hold_s=self.max_hold_s,
            timeout_s=self.timeout_s,
            idempotent=self.idempotent,
            max_queue_rows=self.max_queue_rows,
            max_queue_requests=self.max_queue_rows,
            max_queue_bytes=self.max_queue_bytes,
            fair=self.fair_by is not None,
        )


_V1 = re.compile(rb"/v1/models/([^/:]+):predict$")
_TF_SERVING = re.compile(rb"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict$", re.IGNORECASE)
_V2 = re.compile(rb"/v2/models/([^/]+)(?:/versions/[^/]+)?/infer$")
# In the order in which they are tried.
_WIRES: dict[Protocol, list[tuple[re.Pattern[bytes], Wire[Any, Any]]]] = {
    "v1": [(_V1, RowsWire(add_batch_id=True))],
    "v2": [(_V2, V2Wire())],
    "tfserving": [(_TF_SERVING, RowsWire(add_batch_id=False))],
}
_WIRES["auto"] = [*_WIRES["v2"], *_WIRES["v1"], *_WIRES["tfserving"]]


class Proxy:
    """The front end of some servers that all serve the same models. Make it inside a running event loop.

    Raises:
        ValueError: if an address or a setting is wrong.
    """

    def __init__(self, urls: Sequence[str], settings: ProxySettings) -> None:
        settings.rules("model")
        self._settings = settings
        self._metrics = Metrics()
        recorder = Recorder(self._metrics, sample=lambda model: self._dispatcher.sample(model))
        self._servers = HttpServers(
            urls,
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
            listener=self,
            health_path=settings.health_path,
        )
        self._batch_head = BatchHead(secrets.token_hex(4))
        self._calls = MergedCalls(
            self._servers,
            idempotent=settings.idempotent,
            trace=None if settings.traces is None else partial(settings.traces.begin_batch, self._batch_head),
        )
        self._dispatcher: AsyncDispatcher[Sent, Outcome] = AsyncDispatcher(
            self._calls, observers=(recorder, *settings.observers(self._metrics, self._batch_head))
        )
        self.board = Board(
            self,
            dispatcher=self._dispatcher,
            recorder=recorder,
            names=PROXY,
            has_goal=settings.goal_s is not None,
        )
        self._pass_through = PassThrough(self._servers, timeout_s=settings.timeout_s)
        self._metrics.registry.register(
            LiveState(
                apis=self._dispatcher.stats,
                workers=self._states,
                restarts=lambda: self.restarts,
                has_goal=settings.goal_s is not None,
            )
        )
        self._models = KnownModels(
            settings.rules, dispatcher=self._dispatcher, metrics=self._metrics, recorder=recorder
        )
        self.draining = False
        self.ready = asyncio.Event()
        """Set when the first server has proved healthy."""
        self._hot = settings.hot_routes(self._resolve)
        pages = Pages(self, settings, for_clients=[Mount("/", self._pass_through)], error=_error)
        self.app, self.admin_app, self._end_pages = pages.app, pages.admin_app, pages.close

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection, for uvicorn: what can be merged, and for all else :attr:`app`."""
        return HttpProtocol(self._hot, **uvicorn)

    def start(self) -> None:
        """Begin to look after the servers."""
        self._servers.start()

    def retire(self) -> None:
        """Have /readyz say no from now on; requests are taken all the same."""
        self.draining = True

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered.

        Connections are closed with the next answer on them.
        """
        self.retire()
        self._pass_through.draining = self._hot.closing = True
        await self._dispatcher.drain()
        self._end_pages()

    def unanswered(self) -> int:
        """How many requests are held or run; of those that are passed through nothing is known."""
        return self._dispatcher.unanswered

    def give_up(self) -> None:
        """Refuse what has not been answered yet, unless it is passed through."""
        self._dispatcher.give_up()
        self._end_pages()

    async def close(self) -> None:
        """Close all connections to servers."""
        await self._calls.close()
        await self._servers.close()
        await self._pass_through.close()
        self._dispatcher.close()

    # Permits

    def worker_ready(self, worker: int) -> None:
        """One call more may be outstanding."""
        self.ready.set()
        self._dispatcher.worker_ready(worker)

    def worker_lost(self, worker: int) -> None:
        """One call less."""
        self._dispatcher.worker_lost(worker)

    # Routes

    def _resolve(self, target: bytes) -> MergedRoute | None:
        """Where a POST request goes; None if it is passed through."""
        settings, path = self._settings, path_of(target)
        for pattern, wire in _WIRES[settings.protocol]:
            found = pattern.search(path)
            if found is None:
                continue
            model = found[1].decode("utf-8", "backslashreplace")
            # The name is in the log, which is read line by line, and in /metrics.
            if not model.isprintable() or len(model) > _LONGEST_NAME or model == UNKNOWN:
                return None
            return MergedRoute(
                target,
                model=model,
                wire=wire,
                most_rows=settings.most_rows_of_part,
                header_rules=settings.headers,
                models=self._models,
                dispatcher=self._dispatcher,
                relay=self._pass_through.relay,
                max_body_bytes=settings.max_body_bytes,
                batch_head=self._batch_head,
                fair_by=settings.fair_by,
            )
        return None

    def _states(self) -> list[str]:
        """A state for each call that may be outstanding."""
        return [place.state for place in self._servers.places() if place.state != "lost"]

    # What the pages tell

    server = "proxy"
    restarts = 0

    def shown(self) -> dict[str, Shown]:
        """The models that the servers know."""
        return dict.fromkeys(self._models.names(), Shown())

    def failure(self, api: str) -> None:
        """Nothing is known of what servers raise; clients get their answers as they are."""

    def places(self) -> list[Place]:
        """The calls that servers run or could, and the servers that are not healthy."""
        return [
            Place(index, one.state, number=one.permit, url=one.url, fault=one.fault)
            for index, one in enumerate(self._servers.places())
        ]

    @property
    def any_ready(self) -> bool:
        """Whether a server is healthy."""
        return any(server.healthy for server in self._servers.stats())

    @property
    def trouble(self) -> str:
        """Why no server is healthy, if none is."""
        faults = "; ".join(f"{server.url}: {server.fault}" for server in self._servers.stats())
        return f"no server is healthy: {faults}"

    def render_metrics(self) -> bytes:
        """All that is counted, for Prometheus."""
        self._models.expire()
        return self._metrics.render()


def _error(path: str, status: int, detail: str, headers: dict[str, str]) -> Response:
    return Response(error_body(detail), status, headers=headers, media_type="application/json")
