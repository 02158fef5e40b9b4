"""A worker port on a real socket, with the pool behind it."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import trustme
import uvloop

from tests import loops
from tests.gateway.backends.pool_stage import Listener
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.running import turns
from tests.gateway.worker_peer import LAUNCH_SECRET, TOKEN, Address, Peer, dial
from uncork_gateway.backends.worker_listener import WorkerListener, WorkerPort
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.certificates import ServerTls
from uncork_workers.wire.overrides import Override

LOOPS = ["asyncio", "uvloop"]
"""A server runs on uvloop, whose sockets and TLS are others."""


def run_on(loop: str, main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on one of the loops; fail with what the loop would only log."""
    if loop == "asyncio":
        loops.run(main)
        return
    problems: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(loops.HANG_S):
            await main

    uvloop.run(watched())
    assert not problems


class PortStage:
    """A worker port, its pool, and the reasons of refusals so far."""

    def __init__(self, pool: WorkerPool, news: Listener, port: WorkerPort, **settings: Any) -> None:
        self.pool = pool
        self.news = news
        self.refusals: list[str] = []
        self.address: Address = port.listener.getsockname()
        self.listener = WorkerListener(pool, port, on_refusal=self.refusals.append, **settings)
        self._peers: list[Peer | FakeWorker] = []

    async def peer(self, tls: ssl.SSLContext | None = None) -> Peer:
        """Connect a peer that has sent nothing yet."""
        peer = await Peer.connect(self.address, tls)
        self._peers.append(peer)
        return peer

    async def dial(
        self, *, instance: str = "x", tls: ssl.SSLContext | None = None, **fields: Any
    ) -> tuple[FakeWorker, int]:
        """Connect a worker that knows the token; return its index too."""
        worker, welcome = await dial(self.address, instance=instance, tls=tls, **fields)
        self._peers.append(worker)
        return worker, welcome.index

    async def accepts_workers(self, tls: ssl.SSLContext | None = None) -> bool:
        """Return whether a worker that knows the token gets through to the pool."""
        before = len(self.pool.states())
        await self.dial(instance=f"late {before}", tls=tls)
        return len(self.pool.states()) == before + 1

    async def close(self) -> None:
        await self.pool.close()
        for peer in self._peers:
            peer.close()
        await turns()


@contextlib.asynccontextmanager
async def worker_port(
    *,
    tls: ssl.SSLContext | None = None,
    reserved: int = 0,
    overrides: Sequence[Override] = (),
    warmup_seconds: float = 0.0,
    listening: socket.socket | None = None,
) -> AsyncIterator[PortStage]:
    """Open a worker port on a free port of the loopback address, or on a socket that listens."""
    news = Listener()
    port = WorkerPort(
        listener=listening or socket.create_server(("127.0.0.1", 0), backlog=200),
        token=TOKEN,
        tls=None if tls is None else ServerTls(tls),
        launch_secret=LAUNCH_SECRET,
    )
    made = PortStage(
        WorkerPool(
            news.on_worker,
            log=ServiceLog(""),
            kill=news.dropped.append,
            finished_batch=news.finished_batch,
            reserved=reserved,
        ),
        news,
        port,
        overrides=overrides,
        warmup_seconds=warmup_seconds,
    )
    made.listener.listen()
    try:
        yield made
    finally:
        made.listener.close()
        assert not made.listener.introductions
        await made.close()


class Certificates:
    """TLS for both sides, from one authority."""

    def __init__(self) -> None:
        self.authority = trustme.CA()

    def server(self, *, of_workers: bool = False) -> ssl.SSLContext:
        """Return the gateway's side, which may require certificates of workers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        if of_workers:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """Return the worker's side."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if with_certificate:
            self.authority.issue_cert("worker").configure_cert(context)
        return context
