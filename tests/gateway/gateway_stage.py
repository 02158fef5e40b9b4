"""A whole gateway on real Unix sockets, fake workers, and a client that speaks HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import httpx
import uvicorn

from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from tests.loops import HANG_S
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.services.served_service import ServedService
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.wire.messages import Batch, Hello, Ready
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.schema import ServiceDescription


class GatewayStage:
    """A gateway with one service, its workers and clients, and the processes that it had killed."""

    def __init__(self, folder: Path, settings: GatewaySettings, *, name: str | None = None) -> None:
        self._folder = folder
        self.socket_path = str(folder / "s")
        self._http_path = str(folder / "h")
        self.killed: list[int] = []
        self.gateway = Gateway(settings)
        self.standby_path = str(folder / "s2")
        self.standing_by: asyncio.Queue[int] = asyncio.Queue()
        self.service = self._add(settings, name)
        # Without TLS it need not read the system's certificates, which takes 20 ms.
        transport = httpx.AsyncHTTPTransport(uds=self._http_path, verify=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=HANG_S)
        self._workers: list[FakeWorker] = []
        self._asking: list[asyncio.Task[httpx.Response]] = []

    def _add(self, settings: GatewaySettings, name: str | None) -> ServedService:
        actions = SupervisorActions(
            kill=self.killed.append, restarts=lambda: 4, stands_by=self.standing_by.put_nowait
        )
        return self.gateway.add(settings, actions, name=name)

    async def add(self, name: str, **settings: Any) -> ServedService:
        """Serve another service; its workers have a socket of their own."""
        service = self._add(GatewaySettings(**settings), name)
        await service.pool.listen(self._socket_of(service))
        return service

    def _socket_of(self, service: ServedService) -> str:
        return (
            self.socket_path if service is self.service else str(self._folder / service.batching.prefix[:-1])
        )

    async def listen(self) -> None:
        """Accept connections of workers and clients."""
        await self.service.pool.listen(self.socket_path)
        await self.service.pool.listen(self.standby_path, standby=True)
        config = uvicorn.Config(self.gateway.front_end.app, lifespan="off", log_config=None)
        config.load()
        state = uvicorn.Server(config).server_state
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: cast(
                asyncio.Protocol,
                self.gateway.front_end.protocol(config=config, server_state=state, app_state={}),
            ),
            self._http_path,
        )

    async def connect(self) -> FakeWorker:
        """Connect a worker that has sent nothing yet."""
        worker = await FakeWorker.connect(self.socket_path)
        self._workers.append(worker)
        return worker

    async def worker(
        self, *, index: int = 0, serves: ServiceDescription | None = None, of: ServedService | None = None
    ) -> FakeWorker:
        """Connect a worker that accepts batches, by default of the first service."""
        of = of or self.service
        launch = 1 + len(self._workers)
        worker = await FakeWorker.ready(self._socket_of(of), index=index, launch=launch, serves=serves)
        self._workers.append(worker)
        await of.batching.ready.wait()
        await turns()
        return worker

    async def standby(
        self, launch: int, *, index: int = 0, serves: ServiceDescription | None = None
    ) -> FakeWorker:
        """Connect a worker that is ready to take over."""
        worker = await FakeWorker.connect(self.standby_path)
        self._workers.append(worker)
        worker.send(Hello(index=index, launch=launch, service=serves or service(), files=[f"{launch}.py"]))
        worker.send(Ready())
        assert await self.standing_by.get() == launch
        return worker

    def post(self, path: str, value: Any) -> asyncio.Task[httpx.Response]:
        """Send a request; a worker has to answer it."""
        asking = asyncio.create_task(self.http.post(path, json=value))
        self._asking.append(asking)
        return asking

    async def echo(self, worker: FakeWorker, path: str, value: Any) -> tuple[Batch, httpx.Response]:
        """Send a request that a worker answers with its own body; return batch and reply."""
        asking = self.post(path, value)
        batch, payload = await worker.batch()
        worker.answer(batch, [payload])
        return batch, await asking

    async def ready(self) -> httpx.Response:
        return await self.http.get("/readyz")

    async def close(self) -> None:
        """Close everything, connections after the requests that use them."""
        for asking in self._asking:
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await self.http.aclose()
        self._server.close()
        await self.gateway.close()
        for worker in self._workers:
            worker.close()
        await turns()


@contextlib.asynccontextmanager
async def gateway(
    folder: Path,
    *,
    name: str | None = None,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> AsyncIterator[GatewayStage]:
    """A gateway on a socket in a folder, with a service; ``overrides`` apply to all its APIs."""
    made = GatewayStage(folder, GatewaySettings(overrides=for_all_apis(overrides), **settings), name=name)
    await made.listen()
    try:
        yield made
    finally:
        await made.close()


def client_of(app: object) -> httpx.AsyncClient:
    """A client of an application, such as that on the operators' port, without a server between them."""
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://operators")


def problem(reply: httpx.Response, status: int) -> str:
    """Return the detail of a problem document; fail if the reply is not one of that status."""
    assert (reply.status_code, reply.json()["status"]) == (status, status)
    assert reply.headers["content-type"] == "application/problem+json"
    # Without a connection, as for the application of operators, there is no id.
    assert reply.json().get("request_id") == reply.headers.get("x-request-id")
    text: str = reply.json()["detail"]
    return text
