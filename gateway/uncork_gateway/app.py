"""Puts the parts of the gateway together: workers' sockets, dispatcher, routes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from uncork_dispatcher import ApiRules, AsyncDispatcher, Ended, Job
from uncork_gateway.batches import from_frame, to_frame
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.errors import Unavailable
from uncork_gateway.exchange import BatchHead
from uncork_gateway.hot_route import HotRoute
from uncork_gateway.http import HotRoutes, HttpProtocol
from uncork_gateway.metrics import LiveState, Metrics
from uncork_gateway.models import Model, dialects_of, models_of
from uncork_gateway.pages import Pages
from uncork_gateway.upstreams.worker_pool import WorkerPool
from uncork_workers.description import ApiDescription, ApiSettings, ServiceDescription
from uncork_workers.frames import Failed, FrameError

log = logging.getLogger("uncork.gateway")

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000
# A worker that was told to go, because another has taken over, does so in a moment unless something is stuck.
_LEAVING_S = 10.0


class ServiceUnusable(Exception):
    """The service can never be served as it is: it cannot be loaded, or is defined wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What is in force for all apis.

    Attributes:
        overrides: values that replace the apis' own, by name of the ``@api`` argument.
        max_body_bytes: largest request body.
        max_queue_rows: rows that may be held per api; more are refused with 503. An api that gives a cost
            may hold as much cost, or 20 full batches if that is more, in 20 000 requests or as many as rows.
        max_queue_bytes: bytes of bodies that may be held per api; more are refused with 503.
        fair_by: header, in lower case, whose values share each queue equally; None: first come, first served.
    """

    overrides: dict[str, Any] = field(default_factory=dict)
    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    fair_by: bytes | None = None


class Gateway:
    """The front end of one service. Make it inside a running event loop.

    Args:
        settings: what is in force.
        kill_worker: ends a worker process by its number; if it is in force, another is started then.
        restarts: how many workers have been started again so far.
        stands_by: told the number of a worker process that is ready to take over.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        kill_worker: Callable[[int], None],
        restarts: Callable[[], int],
        stands_by: Callable[[int], object] = lambda pid: None,
    ) -> None:
        self._settings = settings
        self._kill_worker = kill_worker
        self._stands_by = stands_by
        self._pool = WorkerPool(self)
        self._metrics = Metrics()
        self._dispatcher: AsyncDispatcher[Marshalled, RowsReply] = AsyncDispatcher(
            self, observer=self._metrics
        )
        self._metrics.registry.register(
            LiveState(apis=self._dispatcher.stats, workers=self._pool.states, restarts=restarts)
        )
        self._batch_head = BatchHead(secrets.token_hex(4))
        self.service: ServiceDescription | None = None
        """As the workers say it, without the overrides."""
        self._in_force: dict[str, ApiSettings] = {}
        self.models: dict[str, Model] = {}
        self.draining = False
        self.trouble = "workers are starting"
        self._shown_traceback = ""
        self._failures: dict[int, str] = {}
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        """Done when the first worker has said what it serves; :class:`ServiceUnusable` if it cannot."""
        self.ready = asyncio.Event()
        """Set when the first worker takes batches."""
        self.files: set[str] = set()
        """Paths of the files of which the service consists, or did at some time."""
        self._hot = HotRoutes()
        self.app = Pages(self).app

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection, for uvicorn: hot routes, and for all else :attr:`app`."""
        return HttpProtocol(self._hot, **uvicorn)

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Wait for workers on a Unix socket; those on a ``standby`` one wait there for :meth:`take_over`."""
        await self._pool.listen(socket_path, standby=standby)

    def take_over(self, pids: Collection[int]) -> set[int]:
        """Have worker processes that stand by take the places of all others, and what they serve be in force.

        The others get no more batches, and are told to go when what they run has ended. Returns the processes
        of those that had been ready.

        Raises:
            ValueError: if one of the new workers has gone, they differ in what they serve, or that cannot be
                served; nothing has changed then.
        """
        first, *rest = self._pool.standbys(pids)
        if any(service != first for service in rest):
            raise ValueError("the new workers differ in what they serve")
        if first != self.service:
            self._put_in_force(first)
            self.service = first
        return self._pool.take_over(pids)

    async def attach(self, connected: socket.socket) -> None:
        """Take a socket at whose other end is a worker already."""
        await self._pool.attach(connected)

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered."""
        self.draining = True
        await self._dispatcher.drain()

    async def close(self) -> None:
        """Let the workers go."""
        await self._pool.close()
        self._dispatcher.close()

    # What the pages tell

    @property
    def any_ready(self) -> bool:
        """Whether a worker takes batches."""
        return self._pool.any_ready

    def is_api(self, path: str) -> bool:
        """Whether requests for batches are taken at a path."""
        return self._hot.find(path.encode()) is not None

    def render_metrics(self) -> bytes:
        """All that is counted, for Prometheus."""
        return self._metrics.render()

    def worker_exited(self, index: int, how: str) -> None:
        """The supervisor's word on a worker process that ended; /readyz tells it when none is left."""
        reason = self._failures.pop(index, None)
        self.trouble = reason or f"worker {index} {how}"
        if reason is None:
            log.warning("%s", self.trouble)

    # The pool's listener

    def worker_imported(self, files: list[str]) -> None:
        """Note what to watch."""
        self.files.update(files)

    def worker_described(self, service: ServiceDescription) -> None:
        """Put the apis of a worker in force, if they are not the ones that are."""
        if service == self.service:
            return
        try:
            effective = self._put_in_force(service)
        except ValueError as error:
            self._unusable(str(error))
        else:
            self.service = service
            if not self.described.done():
                self.described.set_result(effective)

    def worker_ready(self, worker: int) -> None:
        """Give it batches."""
        self.ready.set()
        self._dispatcher.worker_ready(worker)

    def worker_lost(self, worker: int) -> None:
        """Have what it was running run elsewhere."""
        self._dispatcher.worker_lost(worker)

    def worker_stands_by(self, pid: int) -> None:
        """Tell the supervisor, which will have it take over together with others."""
        self._stands_by(pid)

    def worker_retired(self, pid: int) -> None:
        """See to it that it goes."""
        asyncio.get_running_loop().call_later(_LEAVING_S, self._kill_worker, pid)

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """Say why, with the traceback of the user's code once per reason."""
        who = "new worker" if standby else "worker"
        reason = f"{who} {failed.index} failed in {failed.stage}: {failed.message}"
        if not standby:
            self._failures[failed.index] = reason
        if failed.traceback and failed.traceback != self._shown_traceback:
            self._shown_traceback = failed.traceback
            log.error("%s\n%s", reason, failed.traceback)
        elif failed.stage == "setup" or standby:
            log.error("%s", reason)
        if failed.stage == "load" and not standby:
            self._unusable(failed.message)

    def _unusable(self, message: str) -> None:
        """The first worker's word decides; one that comes up later is only reported."""
        if not self.described.done():
            self.described.set_exception(ServiceUnusable(message))
        elif self.described.exception() is None:
            log.error("a worker came up with a service that cannot be served: %s", message)

    # Apis

    def _effective(self, service: ServiceDescription) -> ServiceDescription:
        """The service with the overrides in place of its own settings."""
        apis = []
        for api in service.apis:
            settings = msgspec.structs.replace(api.settings, **self._settings.overrides)
            apis.append(msgspec.structs.replace(api, settings=settings))
            apis[-1].check()
        return msgspec.structs.replace(service, apis=apis)

    def _put_in_force(self, service: ServiceDescription) -> ServiceDescription:
        """Have what ``service`` says, under the overrides, be what is served; returns it so."""
        effective = self._effective(service)
        apis = effective.apis
        # All of it is made before any of it is used: a service that is wrong must change nothing.
        rules = [self._rules(api) for api in apis]
        models = models_of(effective)
        routes = {
            api.route.encode(): self._hot_route(
                api, Native(make_codec(api.input, api.settings.cost), offers=api.offers)
            )
            for api in apis
        }
        for model in models.values():
            for path, api, dialect in dialects_of(model):
                routes[path.encode()] = self._hot_route(api, dialect)
        for one in rules:
            self._dispatcher.set_api(one)
        self._in_force = {api.name: api.settings for api in apis}
        self._hot.replace(routes)
        self.models = models
        return effective

    def _rules(self, api: ApiDescription) -> ApiRules:
        settings = api.settings
        max_queue_rows = self._settings.max_queue_rows
        if settings.cost is not None:
            # One number for all apis knows nothing of their units of cost, but a queue must fill batches.
            max_queue_rows = max(max_queue_rows, _QUEUE_BATCHES * settings.mb_max_batch_size)
        return ApiRules(
            name=api.name,
            goal_s=settings.mb_max_latency / 1000,
            max_batch_rows=settings.limit_rows,
            max_batch_bytes=settings.mb_max_batch_bytes,
            policy=settings.policy,
            timeout_s=settings.timeout,
            idempotent=settings.idempotent,
            max_queue_rows=max_queue_rows,
            max_queue_requests=max(_QUEUE_REQUESTS, self._settings.max_queue_rows),
            max_queue_bytes=self._settings.max_queue_bytes,
            fair=self._settings.fair_by is not None,
        )

    def _hot_route(self, api: ApiDescription, dialect: Dialect) -> HotRoute:
        return HotRoute(
            api.name,
            dialect=dialect,
            dispatcher=self._dispatcher,
            tally=self._metrics.api(api.name),
            max_body_bytes=self._settings.max_body_bytes,
            batch_head=self._batch_head,
            fair_by=self._settings.fair_by,
        )

    # The dispatcher's runner

    def start(self, job: Job[Marshalled], ended: Ended[RowsReply]) -> None:
        """Have a worker run a batch."""
        start = job.start
        settings = self._in_force.get(start.api)
        if settings is None:
            gone = Unavailable("this api was taken away while the request was held", retry_after_s=1)
            asyncio.get_running_loop().call_soon(ended, gone)
            return
        batch, bodies = to_frame(job, settings, batch_id=self._batch_head.id_of(start.batch))
        try:
            self._pool.execute(start.worker, batch, bodies, lambda outcome: ended(from_frame(start, outcome)))
        except FrameError as error:
            asyncio.get_running_loop().call_soon(ended, error)

    def abandon(self, batch: int, worker: int) -> None:
        """End a worker that hangs."""
        hello = self._pool.runner_of(batch)
        if hello is not None:
            log.error("worker %d ran a batch past its timeout and is killed", hello.index)
            self._kill_worker(hello.pid)
