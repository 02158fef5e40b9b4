"""The batching proxy: a front end for model servers that are not ours."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from starlette.responses import Response
from starlette.routing import Mount

from uncork_dispatcher import ApiRules, Job
from uncork_gateway.backends.http_servers import HttpServers
from uncork_gateway.backends.known_models import UNKNOWN, KnownModels
from uncork_gateway.backends.merged_calls import MergedCalls, Sent
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.headers import path_of
from uncork_gateway.interfaces import Tracing
from uncork_gateway.pages.plain_pages import Pages
from uncork_gateway.pages.status.formatting import PROXY
from uncork_gateway.pages.status.status_builder import ServedApi
from uncork_gateway.protocols.rows import RowsWire, error_body
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Wire
from uncork_gateway.requests.pass_through import PassThrough
from uncork_gateway.requests.proxy_route import HeaderRules, ProxyRoute
from uncork_gateway.settings import ServerSettings

ProtocolName = Literal["auto", "v1", "v2", "tfserving"]

# Stands for no goal: requests are never shed by prediction, and any time plus a day is finite.
_NO_GOAL_S = 86_400.0
_LONGEST_NAME = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxySettings(ServerSettings):
    """The settings of a proxy; the defaults are those of KServe's documents.

    Attributes:
        protocol: the protocol of clients and servers; ``auto`` chooses by the path.
        max_batch_rows: most rows in a call; larger requests are split.
        max_hold_s: longest hold while a server is idle.
        goal_s: the latency goal; requests that cannot meet it are shed. None: no goal.
        timeout_s: longest time that a call may take.
        policy: when to release a call.
        concurrency: calls that one server runs at a time.
        idempotent: whether a failed call may be repeated, whole or in parts.
        health_path: the path that a healthy server answers with 2xx; None: a connection is enough.
        headers: which headers of merged requests are passed on.
    """

    protocol: ProtocolName = "auto"
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
        """The most rows of a part of a larger request. Without batching, requests are not split."""
        return sys.maxsize if self.policy == "none" else self.max_batch_rows

    def rules(self, model: str) -> ApiRules:
        """Return the dispatcher's rules for a model.

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
# Tried in this order.
_WIRES: dict[ProtocolName, list[tuple[re.Pattern[bytes], Wire[Any, Any]]]] = {
    "v1": [(_V1, RowsWire(add_batch_id=True))],
    "v2": [(_V2, V2Wire())],
    "tfserving": [(_TF_SERVING, RowsWire(add_batch_id=False))],
}
_WIRES["auto"] = [*_WIRES["v2"], *_WIRES["v1"], *_WIRES["tfserving"]]


class Proxy:
    """Servers that all serve the same models, behind a front end. Make it inside a running event loop.

    Raises:
        ValueError: if an address or a setting is wrong.
    """

    server = "proxy"
    restarts = 0
    not_ready = "no server is healthy"

    def __init__(self, urls: Sequence[str], settings: ProxySettings) -> None:
        settings.rules("model")
        self._settings = settings
        self._servers = HttpServers(
            urls,
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
            listener=self,
            health_path=settings.health_path,
            idempotent=settings.idempotent,
        )
        self._calls = MergedCalls(
            self._servers,
            trace=None if settings.traces is None else partial(self._begin_trace, settings.traces),
        )
        self.front_end = front_end = FrontEnd(
            settings,
            self,
            self._calls,
            names=PROXY,
            has_goal=settings.goal_s is not None,
            resolve=self._resolve,
        )
        self._pass_through = PassThrough(self._servers, front_end.listener, timeout_s=settings.timeout_s)
        self._models = KnownModels(
            settings.rules,
            dispatcher=front_end.dispatcher,
            metrics=front_end.metrics,
            forget_api=front_end.forget_api,
        )
        front_end.mount(
            Pages(front_end, self, settings, for_clients=[Mount("/", self._pass_through)], error=_error)
        )

    def start(self) -> None:
        self._servers.start()

    async def close(self) -> None:
        await self._calls.close()
        await self._servers.close()
        await self._pass_through.close()
        self.front_end.close()

    def _begin_trace(self, traces: Tracing, job: Job[Sent]) -> tuple[str, str]:
        return traces.begin_batch(self.front_end.batch_headers.id_of(job.start.batch), job)

    # What the servers report

    def worker_ready(self, worker: int) -> None:
        self.front_end.ready.set()
        self.front_end.dispatcher.worker_ready(worker)

    def worker_lost(self, worker: int) -> None:
        self.front_end.dispatcher.worker_lost(worker)

    # Routes

    def _resolve(self, target: bytes) -> ProxyRoute | None:
        """Return the handler of a POST request; None if the request is passed through."""
        settings, path = self._settings, path_of(target)
        for pattern, wire in _WIRES[settings.protocol]:
            found = pattern.search(path)
            if found is None:
                continue
            model = found[1].decode("utf-8", "backslashreplace")
            # The name is in /metrics and in the log, which is read line by line.
            if not model.isprintable() or len(model) > _LONGEST_NAME or model == UNKNOWN:
                return None
            return ProxyRoute(
                target,
                model=model,
                wire=wire,
                most_rows=settings.most_rows_of_part,
                header_rules=settings.headers,
                models=self._models,
                dispatcher=self.front_end.dispatcher,
                relay=self._pass_through.relay,
                max_body_bytes=settings.max_body_bytes,
                batch_headers=self.front_end.batch_headers,
                fair_by=settings.fair_by,
            )
        return None

    # What the pages show

    @property
    def any_ready(self) -> bool:
        return any(server.healthy for server in self._servers.all)

    @property
    def not_ready_reason(self) -> str:
        faults = "; ".join(f"{server.url}: {server.fault}" for server in self._servers.all)
        return f"{self.not_ready}: {faults}"

    def served_apis(self) -> dict[str, ServedApi]:
        return dict.fromkeys(self._models.names(), ServedApi())

    def failure(self, api: str) -> None:
        """Return None: servers report no exceptions."""

    def slots(self) -> list[BackendSlot]:
        return self._servers.slots()

    def scaling(self) -> None:
        return None

    def worker_states(self) -> list[str]:
        return [slot.state for slot in self._servers.slots() if slot.state != "lost"]

    def serves(self, api: str) -> bool:
        return True

    def expire(self) -> None:
        self._models.expire()


def _error(path: str, status: int, detail: str, headers: dict[str, str]) -> Response:
    return Response(error_body(detail), status, headers=headers, media_type="application/json")
