"""Workers that connect over TLS, on the event loop that the server uses."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
import uvloop

from uncork_gateway.backends.worker_listener import WorkerListener, WorkerPort
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_workers.wire.dialing import Address, Dialer, GatewayUnreachable, client_tls
from uncork_workers.wire.handshake import Application

TOKEN = b"a token for these tests"
AUTHORITY, OF_WORKERS = trustme.CA(), trustme.CA()


class ClosingPool:
    """Takes connections from the listener and closes them."""

    def admit(self, transport: asyncio.Transport, application: Application) -> int:
        asyncio.get_running_loop().call_soon(transport.close)
        return 0


def server_tls(*, client_ca: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def dial_all(
    tls: ssl.SSLContext, dial: Callable[[int], object], *, workers: int, times: int
) -> tuple[Counter[str], list[Exception]]:
    """Dial a listener in threads; return the refusals and the errors of the workers."""
    refusals, errors = Counter[str](), list[Exception]()

    def one(port: int) -> None:
        for _ in range(times):
            try:
                dial(port)
            except Exception as error:
                errors.append(error)

    async def main() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listener = WorkerListener(
            cast(WorkerPool, ClosingPool()),
            WorkerPort(listener=listening, token=TOKEN, tls=tls),
            overrides=[],
            warmup_seconds=0.0,
            on_refusal=lambda reason: refusals.update([reason]),
        )
        await listener.listen()
        port = listening.getsockname()[1]
        await asyncio.gather(*(asyncio.to_thread(one, port) for _ in range(workers)))
        listener.close()

    uvloop.run(main())
    return refusals, errors


def dialer(port: int, tls: ssl.SSLContext) -> Dialer:
    return Dialer(addresses=[Address("127.0.0.1", port)], token=TOKEN, tls=tls)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return path


def test_the_first_bytes_of_a_worker_are_those_of_tls(ca: Path) -> None:
    """However early they arrive."""
    tls = client_tls(ca)

    refusals, errors = dial_all(
        server_tls(), lambda port: dialer(port, tls).dial().connection.close(), workers=4, times=10
    )

    assert (refusals, errors) == (Counter(), [])


def test_a_worker_without_the_certificate_that_the_port_requires_is_refused(ca: Path) -> None:
    tls = client_tls(ca)

    refusals, errors = dial_all(
        server_tls(client_ca=OF_WORKERS), lambda port: dialer(port, tls).dial(), workers=1, times=3
    )

    assert refusals == {"tls": 3}
    assert [type(error) for error in errors] == [GatewayUnreachable] * 3


def test_a_worker_without_tls_is_told_that_the_port_requires_it(ca: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("uncork_gateway.backends.worker_listener._HANDSHAKE_S", 0.05)

    def dial(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            assert plain.recv(1) == b""

    refusals, errors = dial_all(server_tls(), dial, workers=1, times=1)

    assert (refusals, errors) == ({"timeout": 1}, [])
