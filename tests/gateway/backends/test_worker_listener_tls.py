"""The worker port with TLS, on the loop of the tests and on that of a server."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from tests.gateway.backends.listener_stage import LOOPS, Certificates, PortStage, run_on, worker_port
from tests.gateway.running import turns
from tests.loops import HANG_S, until
from uncork_gateway.backends import worker_listener
from uncork_workers.wire.handshake import Refusal

pytestmark = pytest.mark.parametrize("loop", LOOPS)


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


def test_a_worker_may_begin_tls_before_it_is_accepted(loop: str, certificates: Certificates) -> None:
    """Its first bytes are in the socket when the gateway's loop gets to accept it."""

    async def scenario() -> None:
        async with worker_port(tls=certificates.server()) as on:
            with socket.create_connection(on.address) as connection:
                await shake_hands(connection, certificates.client())
            await turns(20)
            assert on.refusals == []

    run_on(loop, scenario())


async def shake_hands(
    connection: socket.socket, context: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.MemoryBIO]:
    """Begin TLS, with the first bytes before the loop runs; return it, and what it wants to send."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    connection.sendall(outgoing.read())
    connection.setblocking(False)
    while not tls.cipher():
        received = await asyncio.get_running_loop().sock_recv(connection, 65536)
        assert received
        incoming.write(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
    connection.sendall(outgoing.read())
    return tls, outgoing


def test_workers_must_have_a_certificate_if_the_gateway_requires_one(
    loop: str, certificates: Certificates
) -> None:
    """One without learns why; one of another authority does not, as the loop sends no alert."""

    async def scenario() -> None:
        async with worker_port(tls=certificates.server(of_workers=True)) as on:
            peer = await on.peer(certificates.client())
            message = "this gateway requires a certificate of the worker; give --tls-cert"
            assert await peer.refusal() == Refusal(reason="tls", message=message)
            stranger = certificates.client()
            Certificates().authority.issue_cert("worker").configure_cert(stranger)
            with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
                await (await on.peer(stranger)).challenge()
            assert on.refusals == ["tls"] * 2
            assert on.pool.states() == []
            assert await on.accepts_workers(certificates.client(with_certificate=True))

    run_on(loop, scenario())


def test_a_refused_peer_cannot_keep_its_connection_open(
    loop: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By not ending its side of TLS, for which the loop would wait 30 s."""
    monkeypatch.setattr(worker_listener, "_END_OF_TLS_S", 0.0)

    async def scenario() -> None:
        async with worker_port(tls=certificates.server()) as on:
            with socket.create_connection(on.address) as connection:
                tls, outgoing = await shake_hands(connection, certificates.client())
                tls.write(bytes(800))
                connection.sendall(outgoing.read())
                async with asyncio.timeout(HANG_S):
                    while await asyncio.get_running_loop().sock_recv(connection, 65536):
                        pass
            assert on.refusals == ["invalid"]

    run_on(loop, scenario())


@pytest.mark.parametrize("of_another", [False, True])
def test_handshakes_of_tls_that_fail_leave_nothing(
    loop: str, of_another: bool, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """More than may be pending: of peers that leave, and of workers that trust another authority."""

    async def fails(on: PortStage) -> None:
        if of_another:
            with pytest.raises(ssl.SSLError):
                await on.peer(Certificates().client())
        else:
            peer = await on.peer()
            peer.send_bytes(b"\x16\x03\x01")
            await turns()
            peer.abort()
        await turns(10)

    async def scenario() -> None:
        async with worker_port(tls=certificates.server()) as on:
            for _ in range(3):
                await fails(on)
            await until(lambda: not on.listener.introductions)
            assert on.refusals == ["tls"] * 3
            assert await on.accepts_workers(certificates.client())

    run_on(loop, scenario())
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("TLS failed: " in message for message in messages)
    assert "2 more for the same reason (tls)" in messages[1]


def test_a_peer_without_tls_is_refused(loop: str, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with worker_port(tls=certificates.server()) as on:
            peer = await on.peer()
            peer.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while await peer.reader.read(1000):
                    pass

            assert on.refusals == ["tls"]
            assert await on.accepts_workers(certificates.client())

    run_on(loop, scenario())


def test_a_peer_that_is_silent_before_tls_is_refused(
    loop: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets no text, which would be no TLS."""

    async def scenario() -> None:
        async with worker_port(tls=certificates.server()) as on:
            with monkeypatch.context() as patch:
                patch.setattr(worker_listener, "_HANDSHAKE_S", 0.0)
                peer = await on.peer()
                await peer.closed()

            assert on.refusals == ["timeout"]
            assert not on.listener.introductions
            assert await on.accepts_workers(certificates.client())

    run_on(loop, scenario())
