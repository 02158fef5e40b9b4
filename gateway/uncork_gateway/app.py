"""Puts the parts of the gateway together: workers' sockets, dispatcher, routes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from uncork_dispatcher import ApiRules, AsyncDispatcher, Ended, Job, Ran, Start, WorkerLost
from uncork_gateway.codecs import AcceptKey, Marshalled, RawKey, TableKey, TensorKey, make_codec
from uncork_gateway.dialects import Dialect, Native
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.errors import Unavailable, problem
from uncork_gateway.exchange import BatchHead
from uncork_gateway.hot_route import HotRoute
from uncork_gateway.http import HotRoutes, HttpProtocol
from uncork_gateway.metrics import CONTENT_TYPE, LiveState, Metrics
from uncork_gateway.models import PREFIXES, Model, ModelPages, dialects_of, models_of
from uncork_gateway.openapi import make_openapi
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.upstreams.worker_pool import Executed, WorkerPool
from uncork_workers.description import ApiDescription, ApiSettings, ServiceDescription
from uncork_workers.frames import Batch, Failed, FrameError

log = logging.getLogger("uncork.gateway")

_QUEUE_BATCHES = 20
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
            may hold as much cost, or 20 full batches if that is more.
    """

    overrides: dict[str, Any] = field(default_factory=dict)
    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000


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
        self._service: ServiceDescription | None = None
        self._in_force: dict[str, ApiSettings] = {}
        self._models: dict[str, Model] = {}
        self._draining = False
        self._trouble = "workers are starting"
        self._shown_traceback = ""
        self._failures: dict[int, str] = {}
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        """Done when the first worker has said what it serves; :class:`ServiceUnusable` if it cannot."""
        self.ready = asyncio.Event()
        """Set when the first worker takes batches."""
        self.files: set[str] = set()
        """Paths of the files of which the service consists, or did at some time."""
        self._hot = HotRoutes()
        pages = ModelPages(
            version=version("uncork"), models=lambda: self._models, ready=lambda: self._is_ready
        )
        self.app = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/healthz", self._readyz),
                Route("/metrics", self._render_metrics),
                Route("/openapi.json", self._openapi),
                *pages.routes(),
            ],
            exception_handlers={HTTPException: self._http_error},
        )

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
        if first != self._service:
            self._put_in_force(first)
            self._service = first
        return self._pool.take_over(pids)

    async def attach(self, connected: socket.socket) -> None:
        """Take a socket at whose other end is a worker already."""
        await self._pool.attach(connected)

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered."""
        self._draining = True
        await self._dispatcher.drain()

    async def close(self) -> None:
        """Let the workers go."""
        await self._pool.close()
        self._dispatcher.close()

    def worker_exited(self, index: int, how: str) -> None:
        """The supervisor's word on a worker process that ended; /readyz tells it when none is left."""
        reason = self._failures.pop(index, None)
        self._trouble = reason or f"worker {index} {how}"
        if reason is None:
            log.warning("%s", self._trouble)

    # The pool's listener

    def worker_imported(self, files: list[str]) -> None:
        """Note what to watch."""
        self.files.update(files)

    def worker_described(self, service: ServiceDescription) -> None:
        """Put the apis of a worker in force, if they are not the ones that are."""
        if service == self._service:
            return
        try:
            effective = self._put_in_force(service)
        except ValueError as error:
            self._unusable(str(error))
        else:
            self._service = service
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
        self._models = models
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
        )

    def _hot_route(self, api: ApiDescription, dialect: Dialect) -> HotRoute:
        return HotRoute(
            api.name,
            dialect=dialect,
            dispatcher=self._dispatcher,
            tally=self._metrics.api(api.name),
            max_body_bytes=self._settings.max_body_bytes,
            batch_head=self._batch_head,
        )

    # The dispatcher's runner

    def start(self, job: Job[Marshalled], ended: Ended[RowsReply]) -> None:
        """Have a worker run a batch."""
        start = job.start
        settings, key = self._in_force.get(start.api), start.key
        if settings is None:
            gone = Unavailable("this api was taken away while the request was held", retry_after_s=1)
            asyncio.get_running_loop().call_soon(ended, gone)
            return
        accept = ""
        if isinstance(key, AcceptKey):
            accept, key = key
        bodies = [asked.body for asked in job.payloads]
        batch = Batch(
            batch=start.batch,
            api=start.api,
            limit_rows=settings.limit_rows,
            lengths=list(map(len, bodies)),
            rows=job.rows,
            costs=None if job.costs == job.rows else job.costs,
            idempotent=settings.idempotent,
            timeout_s=settings.timeout,
            form=key.form() if isinstance(key, TensorKey | TableKey | RawKey) else None,
            metas=[asked.meta for asked in job.payloads if asked.meta is not None] or None,
            accept=accept,
        )
        try:
            self._pool.execute(start.worker, batch, bodies, lambda outcome: ended(_ran(start, outcome)))
        except FrameError as error:
            asyncio.get_running_loop().call_soon(ended, error)

    def abandon(self, batch: int, worker: int) -> None:
        """End a worker that hangs."""
        hello = self._pool.runner_of(batch)
        if hello is not None:
            log.error("worker %d ran a batch past its timeout and is killed", hello.index)
            self._kill_worker(hello.pid)

    # Plain routes

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    @property
    def _is_ready(self) -> bool:
        return self._pool.any_ready and not self._draining

    async def _readyz(self, request: Request) -> Response:
        if self._draining:
            return _problem(503, "the server is shutting down")
        if not self._pool.any_ready:
            return _problem(503, f"no worker is ready: {self._trouble}")
        return PlainTextResponse("ready\n")

    async def _render_metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    async def _openapi(self, request: Request) -> Response:
        if self._service is None:
            return _problem(503, f"no worker is ready: {self._trouble}", {"retry-after": "1"})
        document = make_openapi(self._service, version=version("uncork"))
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        write = _plain_error if path.startswith(PREFIXES) or path == "/v2" else _problem
        if self._service is None and error.status_code in (404, 405):
            return write(503, f"no worker is ready: {self._trouble}", {"retry-after": "1"})
        if self._hot.find(path.encode()) is not None:
            return write(405, f"{request.method} is not allowed for {path}; send POST", {"allow": "POST"})
        of_models = path.startswith(PREFIXES) and request.method == "POST" and error.status_code == 405
        if of_models or error.detail == HTTPStatus.NOT_FOUND.phrase:
            return write(404, f"there is no {path} here")
        return write(error.status_code, error.detail, dict(error.headers or {}))


def _ran(start: Start, outcome: Executed | WorkerLost) -> Ran[RowsReply] | WorkerLost:
    """What came of a batch, in the dispatcher's terms."""
    if isinstance(outcome, WorkerLost):
        return outcome
    reply = outcome.reply
    results = [
        RowsReply(status, body, reply.datatype, reply.shape)
        for status, body in zip(reply.statuses, outcome.bodies, strict=True)
    ]
    if reply.content_types is not None:
        headers = reply.headers or [[]] * len(results)
        results = [
            result._replace(content_type=content_type, headers=own)
            for result, content_type, own in zip(results, reply.content_types, headers, strict=True)
        ]
    whole = len(reply.chunks) == 1 and reply.chunks[0][0] == start.rows
    return Ran(
        results,
        outcome="worked" if reply.worked and reply.chunks else "failed",
        # To parse and to write results is work of a batch too.
        chunks=[(start.rows, reply.seconds)] if whole else reply.chunks,
    )


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(problem(status, detail), status, headers=headers, media_type="application/problem+json")


def _plain_error(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(detail), status, headers=headers, media_type="application/json")
