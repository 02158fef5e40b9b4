"""Puts the parts of the gateway together: workers' sockets, dispatcher, routes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
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
from uncork_gateway.keys import ApiKeys
from uncork_gateway.metrics import LiveState, Metrics
from uncork_gateway.models import Model, dialects_of, models_of
from uncork_gateway.pages import Pages
from uncork_gateway.patience import BodyPool, ClientLimits
from uncork_gateway.stream_route import StreamRoute
from uncork_gateway.troubles import Troubles
from uncork_gateway.upstreams.worker_pool import Profile, WorkerPool
from uncork_workers.description import ApiDescription, ServiceDescription
from uncork_workers.frames import Failed, FrameError

log = logging.getLogger("uncork.gateway")

_QUEUE_BATCHES = 20
_QUEUE_REQUESTS = 20_000
# A worker that was told to go, because another has taken over, does so in a moment unless something is stuck.
_LEAVING_S = 10.0
# So many deaths in a row are not chance; the log says so once.
_CRASH_LOOP = 5


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
        keys: the API keys that are accepted; None: none is wanted.
        admin: whether metrics and documents are in an app of their own, :attr:`Gateway.admin_app`.
        clients: what a client may take up.
        max_queue_bytes: bytes of bodies that may be held per api; more are refused with 503.
        fair_by: header, in lower case, whose values share each queue equally; None: first come, first served.
    """

    overrides: dict[str, Any] = field(default_factory=dict)
    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000
    keys: ApiKeys | None = None
    admin: bool = False
    clients: ClientLimits = field(default_factory=ClientLimits)
    max_queue_bytes: int = 256 * 2**20
    fair_by: bytes | None = None


class Gateway:
    """The front end of one service. Make it inside a running event loop.

    Args:
        settings: what is in force.
        kill_worker: ends a worker process by its number; if it is in force, another is started then.
        restarts: how many workers have been started again so far.
        stands_by: told the number of a worker process that is ready to take over.
        finished_batch: told the number of a worker process for each batch that it has answered.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        kill_worker: Callable[[int], None],
        restarts: Callable[[], int],
        stands_by: Callable[[int], object] = lambda pid: None,
        finished_batch: Callable[[int], object] = lambda pid: None,
    ) -> None:
        self._settings = settings
        self._kill_worker = kill_worker
        self._stands_by = stands_by
        self._finished_batch = finished_batch
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
        self._in_force: dict[str, ApiDescription] = {}
        self.models: dict[str, Model] = {}
        self.draining = False
        self._troubles = Troubles()
        self.why_no_standby = self._troubles.why_no_standby
        """Why the worker of an index that was to take over could not, if it has said so."""
        self._shown_traceback = ""
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        """Done when the first worker has said what it serves; :class:`ServiceUnusable` if it cannot."""
        self.ready = asyncio.Event()
        """Set when the first worker takes batches."""
        self.files: set[str] = set()
        """Paths of the files of which the service consists, or did at some time."""
        keys = settings.keys
        self._hot = HotRoutes(
            limits=settings.clients,
            pool=BodyPool.for_bodies(settings.max_body_bytes),
            admit=keys.admit if keys else None,
        )
        pages = Pages(self, keys=keys, admin=settings.admin)
        self.app, self.admin_app = pages.app, pages.admin_app

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection, for uvicorn: hot routes, and for all else :attr:`app`."""
        return HttpProtocol(self._hot, **uvicorn)

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Wait for workers on a Unix socket; those on a ``standby`` one wait there for :meth:`take_over`."""
        await self._pool.listen(socket_path, standby=standby)

    def take_over(self, pids: Collection[int]) -> set[int]:
        """Have worker processes that stand by take the places of those of the same indexes.

        What they serve is in force then. The old ones get no more batches, and are told to go when what they
        run has ended. Returns the processes of those that had been ready.

        Raises:
            ValueError: if one of the new workers has gone, they differ in what they serve from each other or
                from workers that stay, or it cannot be served; nothing has changed then.
        """
        first, *rest = self._pool.standbys(pids)
        if any(service != first for service in rest):
            raise ValueError("the new workers differ in what they serve")
        if first != self.service:
            if self._pool.any_left_by(pids):
                raise ValueError("it does not serve what the other workers serve; all need a reload")
            self._serve(first)
        return self._pool.take_over(pids)

    async def attach(self, connected: socket.socket) -> None:
        """Take a socket at whose other end is a worker already."""
        await self._pool.attach(connected)

    def retire(self) -> None:
        """Have /readyz say no from now on; requests are taken all the same."""
        self.draining = True

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered.

        Connections are closed with the next answer on them.
        """
        self.retire()
        self._hot.closing = True
        await self._dispatcher.drain()

    def give_up(self) -> None:
        """Refuse what has not been answered yet."""
        self._dispatcher.give_up()

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

    @property
    def trouble(self) -> str:
        """Why no worker is ready, if none is."""
        return self._troubles.text()

    def worker_exited(self, index: int, how: str, *, failures: int = 0, retry_s: float = 0.0) -> None:
        """The supervisor's word on a worker process that ended; /readyz tells it when none is left.

        ``failures`` is how often in a row the worker has ended without having finished a batch, ``retry_s``
        when it is started again.
        """
        unsaid = self._troubles.exited(index, how, failures=failures, retry_s=retry_s)
        if unsaid is not None:
            log.warning("%s", unsaid)
        if failures == _CRASH_LOOP:
            log.error(
                "worker %d has ended %d times in a row before its first batch was done", index, failures
            )

    # The pool's listener

    def worker_imported(self, files: list[str]) -> None:
        """Note what to watch."""
        self.files.update(files)

    def worker_described(self, service: ServiceDescription) -> None:
        """Put the apis of a worker in force, if they are not the ones that are."""
        if service == self.service:
            return
        try:
            self._serve(service)
        except ValueError as error:
            self._unusable(str(error))

    def worker_connected(self, index: int) -> None:
        """Note since when it is in setup."""
        self._troubles.setting_up(index)

    def batch_finished(self, pid: int) -> None:
        """Tell the supervisor, which counts them."""
        self._finished_batch(pid)

    def worker_dropped(self, pid: int) -> None:
        """End it: what it does is not to be trusted."""
        self._kill_worker(pid)

    def worker_ready(self, worker: int) -> None:
        """Give it batches."""
        self.ready.set()
        self._troubles.ready()
        self._dispatcher.worker_ready(worker)

    def worker_profiled(self, worker: int, profile: Profile) -> None:
        """Have the estimate know what is known of batches of the apis that are in force."""
        for api, chunks in profile.items():
            if api in self._in_force:
                self._dispatcher.profile(api, worker, chunks)

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
        self._troubles.failed(failed.index, reason, standby=standby)
        if failed.traceback and failed.traceback != self._shown_traceback:
            self._shown_traceback = failed.traceback
            log.error("%s\n%s", reason, failed.traceback)
        elif failed.stage != "load" or standby:
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
        """The service with the overrides in place of its own settings.

        What is streamed goes one by one and once, whatever they say.
        """
        apis = []
        for api in service.apis:
            settings = msgspec.structs.replace(api.settings, **self._settings.overrides)
            if api.streams:
                settings = msgspec.structs.replace(settings, policy="none", idempotent=False)
            apis.append(msgspec.structs.replace(api, settings=settings))
            apis[-1].check()
        return msgspec.structs.replace(service, apis=apis)

    def _serve(self, service: ServiceDescription) -> None:
        effective = self._put_in_force(service)
        self.service = service
        if not self.described.done():
            self.described.set_result(effective)

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
        self._in_force = {api.name: api for api in apis}
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
        route = StreamRoute if api.streams else HotRoute
        return route(
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
        start, sink = job.start, job.payloads[0].sink
        api = self._in_force.get(start.api)
        if api is None or api.streams != (sink is not None):
            gone = Unavailable("this api was taken away while the request was held", retry_after_s=1)
            asyncio.get_running_loop().call_soon(ended, gone)
            return
        batch, bodies = to_frame(job, api.settings, batch_id=self._batch_head.id_of(start.batch))
        on_piece = None if sink is None else sink.piece
        try:
            self._pool.execute(
                start.worker,
                batch,
                bodies,
                lambda outcome: ended(from_frame(start, outcome)),
                on_piece=on_piece,
            )
        except FrameError as error:
            asyncio.get_running_loop().call_soon(ended, error)
            return
        if sink is not None:
            sink.started(start.batch, partial(self._pool.cancel, start.batch))

    def abandon(self, batch: int, worker: int) -> None:
        """End a worker that hangs."""
        hello = self._pool.runner_of(batch)
        if hello is not None:
            log.error("worker %d ran a batch past its timeout and is killed", hello.index)
            self._kill_worker(hello.pid)
