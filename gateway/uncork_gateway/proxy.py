"""The batching proxy: a front end for other projects' model servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from uncork_dispatcher import Batch, SettingError
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.known_models import KnownModels
from uncork_gateway.backends.model_servers.merged_calls import MergedCalls
from uncork_gateway.backends.model_servers.server import Server, are_grpc, read_addresses
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.batching import Batching
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.pages.plain_pages import Pages
from uncork_gateway.pages.status.api_status import ServedApi
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.requests.pass_through import PassThrough
from uncork_gateway.requests.proxy_route import ProxyRoute, find_route
from uncork_gateway.requests.proxy_target import Merging
from uncork_gateway.settings import ProxySettings

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


class Proxy:
    """Equal model servers behind a front end. Create it inside a running event loop.

    Raises:
        ValueError: if an address or a setting is invalid.
    """

    server = "proxy"
    restarts = 0
    not_ready = "no server is healthy"

    def __init__(self, urls: Sequence[str], settings: ProxySettings) -> None:
        settings.rules("model")
        self._settings = settings
        self._find_route: Callable[[bytes], ProxyRoute | None] = lambda target: None
        self._addresses = addresses = read_addresses(urls)
        self._servers: Servers[Any] = Servers(
            _servers_at(addresses, settings),
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
            listener=self,
            idempotent=settings.idempotent,
        )
        self._calls = MergedCalls(
            self._servers,
            trace=None if settings.traces is None else partial(self._begin_trace, settings.traces),
            limited=lambda api, rows: self._models.limit(api, rows),
        )
        self.front_end = front_end = FrontEnd(settings, resolve=lambda target: self._find_route(target))
        self._batching = batching = Batching(
            self,
            self._calls,
            batches=front_end.batches,
            bursts=front_end.listener.bursts,
            traces=settings.traces,
            is_proxy=True,
            has_goal=settings.goal_s is not None,
        )
        front_end.add(batching)
        self._models = KnownModels(
            settings.rules,
            dispatcher=batching.dispatcher,
            metrics=batching.metrics,
            forget_api=batching.forget_api,
        )
        self._merging = merging = Merging(
            dispatcher=batching.dispatcher,
            models=self._models,
            batch_headers=batching.batch_headers,
            header_rules=settings.headers,
            most_rows=settings.most_rows_of_part,
            idempotent=settings.idempotent,
            fair_by=settings.fair_by,
        )
        serve = self._serve_grpc if are_grpc(addresses) else self._serve_http
        otherwise = Mount("/", serve(merging))
        front_end.mount(Pages(front_end, for_clients=[otherwise], error=_error))

    def _serve_http(self, merging: Merging) -> ASGIApp:
        """Merge HTTP requests; return the application for all others."""
        settings = self._settings
        passing = PassThrough(
            self._servers,
            self.front_end.listener,
            timeout_s=settings.timeout_s,
            max_body_bytes=settings.max_body_bytes,
            ca=settings.server_ca,
        )
        self._close_pass_through = passing.close

        def change(settings: ProxySettings, renew: bool) -> None:
            passing.change(
                timeout_s=settings.timeout_s,
                max_body_bytes=settings.max_body_bytes,
                ca=settings.server_ca,
                renew=renew,
            )
            self._find_route = partial(
                find_route,
                protocol=settings.protocol,
                merging=merging,
                relay=passing.relay,
                max_body_bytes=settings.max_body_bytes,
            )

        self._change_pass_through = change
        change(settings, False)
        return passing

    def _serve_grpc(self, merging: Merging) -> ASGIApp:
        """Merge gRPC calls; return the application for HTTP requests."""
        from uncork_gateway.grpc.methods import OpenCalls  # needs an extra
        from uncork_gateway.grpc.proxy.methods import proxied_calls
        from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough

        settings, front_end = self._settings, self.front_end
        passing = GrpcPassThrough(self._servers, front_end.listener, timeout_s=settings.timeout_s)
        self._close_pass_through = passing.close
        self._change_pass_through = lambda settings, renew: passing.change(timeout_s=settings.timeout_s)
        calls = OpenCalls(lambda: front_end.settings.keys)
        open_call, close = proxied_calls(
            settings.protocol,
            merging,
            passing,
            unready=front_end.unready,
            readiness=front_end.readiness,
            calls=calls,
        )
        front_end.mount_grpc(open_call, close=close, keys_changed=calls.keys_changed)
        return _speaks_grpc

    def start(self) -> None:
        self._servers.start()

    def change(self, urls: Sequence[str], settings: ProxySettings, *, renew: bool = False) -> None:
        """Use other servers and settings, except for ``protocol``, ``admin``, ``grpc`` and ``traces``.

        ``renew`` connects to all servers anew, because their certificates have changed.

        Raises:
            ValueError: if they are invalid; nothing has changed then.
        """
        settings.rules("model")
        addresses = read_addresses(urls)
        if are_grpc(addresses) != are_grpc(self._addresses):
            raise ValueError(
                "servers that speak gRPC cannot replace others, or be replaced; restart the proxy"
            )
        before = self._settings
        renew |= (before.concurrency, before.health_path, before.server_ca) != (
            settings.concurrency,
            settings.health_path,
            settings.server_ca,
        )
        # Former servers, which may have equal addresses, come behind those that replace them.
        known = {} if renew else {server.url: server for server in reversed(self._servers.all)}
        missing = [address for address in addresses if str(address) not in known]
        new = _servers_at(missing, settings) if missing else []
        servers = known | {server.url: server for server in new}
        self._servers.change(
            [servers[str(address)] for address in addresses],
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
            idempotent=settings.idempotent,
        )
        self._addresses, self._settings = addresses, settings
        self._models.change(settings.rules)
        merging = self._merging
        merging.header_rules, merging.most_rows = settings.headers, settings.most_rows_of_part
        merging.idempotent, merging.fair_by = settings.idempotent, settings.fair_by
        self.front_end.change(settings)
        self._change_pass_through(settings, renew)

    async def close(self) -> None:
        await self._calls.close()
        await self._close_pass_through()
        await self._servers.close()
        self.front_end.close()

    def _begin_trace(self, traces: Traces, batch: Batch[Any]) -> tuple[str, str]:
        batch_id = self._batching.batch_headers.id_of(batch.number)
        return traces.begin_batch(batch_id, batch, worker=batch.worker)

    # What the servers report

    def worker_ready(self, worker: int) -> None:
        self._batching.ready.set()
        self.front_end.readiness_changed()
        self._batching.dispatcher.worker_ready(worker)

    def worker_lost(self, worker: int) -> None:
        self._batching.dispatcher.worker_lost(worker)

    def worker_retired(self, worker: int) -> None:
        self._batching.dispatcher.worker_retired(worker)

    def health_changed(self) -> None:
        self.front_end.readiness_changed()

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
        """Return None, because servers report no exceptions."""

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


def _error(scope: Scope, status: int, detail: str, headers: dict[str, str]) -> Response:
    return Response(error_body(detail), status, headers=headers, media_type="application/json")


async def _speaks_grpc(scope: Scope, receive: Receive, send: Send) -> None:
    detail = "the model servers speak gRPC: send requests to the gRPC port of this proxy, --grpc-port"
    await _error(scope, 404, detail, {})(scope, receive, send)


def _servers_at(addresses: Sequence[httpx.URL], settings: ProxySettings) -> Sequence[Server]:
    if not are_grpc(addresses):
        return http_servers(
            addresses,
            concurrency=settings.concurrency,
            health_path=settings.health_path,
            ca=settings.server_ca,
        )
    if settings.health_path is not None:
        raise SettingError(
            "health_path", says=" is for HTTP servers; the health of gRPC servers is checked by gRPC"
        )
    from uncork_gateway.grpc.proxy.server import grpc_servers  # needs an extra

    return grpc_servers(addresses, ca=settings.server_ca)
