"""The HTTP side of a gateway or a proxy: listener, routes, metrics, pages, drain."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from starlette.types import ASGIApp

from uncork_dispatcher import AsyncDispatcher, Observer, Runner
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.interfaces import BodyPool, Handler
from uncork_gateway.pages.plain_pages import Pages
from uncork_gateway.pages.status.document import SettingsChange
from uncork_gateway.pages.status.formatting import Names
from uncork_gateway.pages.status.status_builder import StatusBuilder, StatusSource
from uncork_gateway.readiness import Readiness
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.access_log import AccessLog, batch_observers
from uncork_gateway.telemetry.live_state import LiveState
from uncork_gateway.telemetry.metrics import Metrics
from uncork_gateway.telemetry.recorder import Recorder


class Served(StatusSource, Protocol):
    """The service, or the servers behind the proxy."""

    @property
    def not_ready(self) -> str:
        """What is missing while nothing can be executed: ``not_ready_reason`` without the reason."""
        ...

    def worker_states(self) -> Sequence[str]:
        """Return the state of each worker, or of each call that a server may run."""
        ...

    def serves(self, api: str) -> bool:
        """Return whether the dispatcher's API is in force, and not only has requests left."""
        ...

    def expire(self) -> None:
        """Forget APIs that are no longer served; called before metrics are read."""


class FrontEnd:
    """The HTTP side of a service, or of the servers behind a proxy.

    Make it inside a running event loop, and call :meth:`mount` before the first connection.

    Args:
        settings: limits, keys, logs and traces.
        served: the service or the servers, as the pages show them.
        runner: executes the batches.
        names: the words of the status pages.
        has_goal: whether there is a latency goal.
        index_of: returns the index of a worker, given its number.
        resolve: finds the handler of a POST request whose path has none.

    Attributes:
        app: serves all requests that no handler takes.
        admin_app: serves operators on a listener of their own; None if ``app`` serves them.
        open_call: opens the calls of gRPC clients; None if they are not served.
        ready: set when the first batch can run.
        draining: whether the server is stopping; ``/readyz`` then returns 503.
        settings_change: the last change of settings while the server runs.
        readiness: notifies of changes of :meth:`unready` and of the models.
    """

    app: ASGIApp
    admin_app: ASGIApp | None
    open_call: OpenCall | None = None
    status_builder: StatusBuilder

    def __init__(
        self,
        settings: ServerSettings,
        served: Served,
        runner: Runner[Any, Any],
        *,
        names: Names,
        has_goal: bool = True,
        index_of: Callable[[int], int] = lambda worker: worker,
        resolve: Callable[[bytes], Handler[Any] | None] | None = None,
    ) -> None:
        self.settings = settings
        self.batch_headers = BatchHeaders(secrets.token_hex(4))
        self.routes = RouteTable(resolve)
        self.listener = _listener(settings)
        self.metrics = Metrics()
        self.ready = asyncio.Event()
        self.draining = False
        self.settings_change: SettingsChange | None = None
        self._close_pages: Callable[[], object] = lambda: None
        self._close_grpc: Callable[[], object] = lambda: None
        self.readiness = Readiness()
        self._served = served
        self._recorder = Recorder(
            self.metrics, sample=lambda api: self.dispatcher.sample(api), index_of=index_of
        )
        observers: list[Observer] = [self._recorder, self.metrics, *batch_observers(self.batch_headers.id_of)]
        if settings.traces is not None:
            observers.append(settings.traces)
        self.dispatcher: AsyncDispatcher[Any, Any] = AsyncDispatcher(runner, observers=observers)
        self.status_builder = StatusBuilder(
            self,
            served,
            dispatcher=self.dispatcher,
            recorder=self._recorder,
            names=names,
            has_goal=has_goal,
        )
        self.metrics.registry.register(_gauges(self.dispatcher, served, has_goal=has_goal))

    def change(self, settings: ServerSettings) -> None:
        """Put other settings in force; ``admin``, ``grpc`` and ``traces`` stay as they were.

        Open connections keep the limits on clients.
        """
        self.settings = settings
        listener = self.listener
        listener.limits, listener.keys = settings.clients, settings.keys
        listener.access_log = AccessLog() if settings.access_log else None
        listener.pool.max_bytes = BodyPool.for_bodies(settings.max_body_bytes).max_bytes
        # Requests with a known head are accepted without another look at their key.
        self.routes.forget_heads()

    def mount(self, pages: Pages) -> None:
        """Serve pages: health, status, metrics and all that is not a batch. They live until :meth:`close`."""
        self.app, self.admin_app, self._close_pages = pages.app, pages.admin_app, pages.close
        pages.start()

    def mount_grpc(self, open_call: OpenCall, *, close: Callable[[], object]) -> None:
        """Serve gRPC clients. ``close`` ends the calls that only watch, which would never end themselves."""
        self.open_call, self._close_grpc = open_call, close

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """Create a connection, for uvicorn."""
        return HttpProtocol(self.routes, self.listener, **uvicorn)

    def forget_api(self, name: str) -> bool:
        """Drop an API's queue, estimate, counts and history; returns False while it has requests."""
        if not self.dispatcher.remove_api(name):
            return False
        self.metrics.forget(name)
        self._recorder.forget(name)
        return True

    # What the pages show

    def unready(self, *, in_full: bool = True) -> str:
        """Return why requests cannot be answered now; empty if they can.

        In full, it may quote an exception of ``setup``, or URLs of servers.
        """
        if self.draining:
            return "the server is shutting down"
        if self._served.any_ready:
            return ""
        return self._served.not_ready_reason if in_full else self._served.not_ready

    def render_metrics(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        self._served.expire()
        return self.metrics.render()

    # Stopping

    def retire(self) -> None:
        """Report not ready from now on, but keep accepting requests."""
        self.draining = True
        self.readiness.may_have_changed()

    async def drain(self) -> None:
        """Refuse new requests, and return when all others are answered.

        Each connection closes after its pending responses.
        """
        self.retire()
        self.listener.closing = True
        await self.dispatcher.drain()
        self._end_streams()

    def unanswered(self) -> int:
        """Return how many requests are queued or running, without those that are passed through."""
        return self.dispatcher.unanswered

    def give_up(self) -> None:
        """Refuse every request that is still queued or running."""
        self.dispatcher.give_up()
        self._end_streams()

    def _end_streams(self) -> None:
        self._close_pages()
        self._close_grpc()

    def close(self) -> None:
        """Stop the dispatcher, and what the pages do on their own."""
        self._end_streams()
        self.dispatcher.close()


def _listener(settings: ServerSettings) -> ListenerContext:
    return ListenerContext(
        limits=settings.clients,
        pool=BodyPool.for_bodies(settings.max_body_bytes),
        keys=settings.keys,
        access_log=AccessLog() if settings.access_log else None,
        traces=settings.traces,
    )


def _gauges(dispatcher: AsyncDispatcher[Any, Any], served: Served, *, has_goal: bool) -> LiveState:
    return LiveState(
        apis=lambda: [api for api in dispatcher.stats() if served.serves(api.name)],
        workers=served.worker_states,
        restarts=lambda: served.restarts,
        startup_s=lambda: dispatcher.startup_s,
        has_goal=has_goal,
    )
