"""A worker that connects to gateways over TCP, and to what only looks like one."""

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.workers.fake_gateway import CHALLENGE, NONCE, TOKEN, Newcomer, server_tls, worker_port
from uncork_workers.wire import dialing
from uncork_workers.wire.dialing import (
    VERSION,
    Address,
    Dialer,
    GatewayRefuses,
    GatewayUnreachable,
    client_tls,
    read_addresses,
    trusting,
)
from uncork_workers.wire.handshake import (
    MAX_APPLICATION_BYTES,
    MAX_WELCOME_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Refusal,
    RefusalReason,
    Welcome,
    with_gateway_proof,
)
from uncork_workers.wire.overrides import for_all_apis


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def dialer(*addresses: Address, tls: ssl.SSLContext | None = None) -> Dialer:
    return Dialer(addresses=addresses, token=TOKEN, tls=tls, instance="i", launch=7, standby=True)


def free_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Address(*server.getsockname())


def after(talk: Callable[[Newcomer], object], says: type[Exception] = GatewayRefuses) -> str:
    with worker_port() as gateway:

        def meet() -> bool:
            newcomer = gateway.accept()
            with contextlib.closing(newcomer):
                talk(newcomer)
                return newcomer.gone()

        met = gateway.during(meet)
        with pytest.raises(says) as raised:
            dialer(gateway.address).dial()
        assert met.result()
        return str(raised.value).replace(str(gateway.address), "GATEWAY")


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_gateway_accepts_the_worker(with_tls: bool, authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    overrides = for_all_apis({"mb_max_batch_size": 7})
    with worker_port(server_tls(authority) if with_tls else None) as gateway:
        admitting = gateway.during(lambda: gateway.admit(index=4, warmup_seconds=2.5, overrides=overrides))
        tls = client_tls(tmp_path / "ca.pem") if with_tls else None
        connection, address, version, welcome = dialer(gateway.address, tls=tls).dial()
        worker, application = admitting.result()
        with connection, contextlib.closing(worker):
            assert (address, version, connection.gettimeout()) == (gateway.address, VERSION, None)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert (welcome.index, welcome.warmup_seconds, welcome.overrides) == (4, 2.5, list(overrides))
        assert (application.protocol, application.version) == (PROTOCOL, VERSION)
        assert (application.instance, application.launch, application.standby) == ("i", 7, True)


WELCOME = Welcome(b"", 0)


def applying(newcomer: Newcomer) -> Application:
    newcomer.send(CHALLENGE)
    application = newcomer.application()
    assert isinstance(application, Application)
    return application


@pytest.mark.parametrize(
    "proof",
    [
        lambda one: with_gateway_proof(b"another token ...", NONCE, one.nonce, WELCOME).proof,
        lambda one: one.proof,
        lambda one: with_gateway_proof(TOKEN, one.nonce, NONCE, WELCOME).proof,
        lambda one: with_gateway_proof(TOKEN, NONCE, one.nonce, Welcome(b"", 1)).proof,
        lambda one: b"",
    ],
)
def test_a_gateway_must_know_the_token_too(proof: Callable[[Application], bytes]) -> None:
    """The worker's own proof, which the gateway could send back, is none."""

    def talk(newcomer: Newcomer) -> None:
        newcomer.send(Welcome(proof(applying(newcomer)), 0))

    assert after(talk) == "GATEWAY: the gateway does not know the token"


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("reason", "error"),
    [("token", GatewayRefuses), ("timeout", GatewayUnreachable), ("too_many", GatewayUnreachable)],
)
def test_a_gateway_may_refuse_the_worker(
    reason: RefusalReason, error: type[Exception], *, at_once: bool
) -> None:
    """At once, for example, if it lacks a certificate. One that cannot accept it now is dialed again."""

    def talk(newcomer: Newcomer) -> None:
        if not at_once:
            applying(newcomer)
        newcomer.send(Refusal(reason=reason, message="not this one"))

    assert after(talk, error) == "GATEWAY: not this one"


def test_a_gateway_with_another_protocol_is_refused_with_both_numbers() -> None:
    """It gets the same message, for its log."""
    answers = []

    def talk(newcomer: Newcomer) -> None:
        newcomer.send(Challenge(NONCE, 99, "9.9"))
        answers.append(newcomer.application())

    message = (
        f"the worker (uncork {VERSION}) speaks worker protocol {PROTOCOL}, the gateway (uncork 9.9) speaks "
        "99; install the same version on both sides"
    )
    assert after(talk) == f"GATEWAY: {message}"
    assert answers == [Refusal(reason="protocol", message=message)]


@pytest.mark.parametrize(
    ("data", "applied"),
    [
        (b"SSH-2.0-OpenSSH_9.7\r\n", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        ((MAX_APPLICATION_BYTES + 1).to_bytes(4, "big") + bytes(4), False),
        (b"\0\0\0\1\0\0\0\1", False),
        (b"\0\0\0\1\0\0\0\0\xc1", False),
        ((MAX_WELCOME_BYTES + 1).to_bytes(4, "big") + bytes(4), True),
    ],
)
def test_another_server_is_no_gateway(data: bytes, *, applied: bool) -> None:
    def talk(newcomer: Newcomer) -> None:
        if applied:
            applying(newcomer)
        newcomer.send_bytes(data)

    says = "GATEWAY is not the worker port of a gateway: the peer does not speak"
    assert after(talk).startswith(says)


@pytest.mark.parametrize("after_bytes", [0, 3])
def test_a_gateway_that_hangs_up_is_unreachable(after_bytes: int) -> None:
    def talk(newcomer: Newcomer) -> None:
        newcomer.send_bytes(bytes(after_bytes))
        newcomer.finish()

    assert "the gateway closed the connection during the handshake" in after(talk, GatewayUnreachable)


def test_a_gateway_that_says_nothing_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_CONNECT_S", 0.01)
    with worker_port() as gateway, pytest.raises(GatewayUnreachable, match="timed out"):
        dialer(gateway.address).dial()


def test_every_gateway_that_does_not_answer_is_named() -> None:
    """In the same order each time, so that the log can leave out repetitions."""
    addresses = [free_address(), Address("no such host.invalid", 1)]
    says = set()
    for _ in range(10):
        with pytest.raises(GatewayUnreachable) as raised:
            dialer(*addresses).dial()
        says.add(str(raised.value))

    assert len(says) == 1
    assert all(f"{address}: " in text for address in addresses for text in says)


def test_any_gateway_will_do() -> None:
    """Each connection has its own nonce."""
    nonces = set()
    with worker_port() as gateway:
        for _ in range(5):
            admitting = gateway.during(gateway.admit)
            connected = dialer(free_address(), gateway.address, free_address()).dial()
            connected.connection.close()
            worker, application = admitting.result()
            worker.close()
            assert connected.address == gateway.address
            nonces.add(application.nonce)
    assert len(nonces) == 5


def test_a_certificate_must_be_of_a_trusted_authority(authority: trustme.CA, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for host, ca, says in (
        ("127.0.0.1", "other.pem", "certificate"),
        ("127.0.0.9", "ca.pem", "IP address mismatch"),
    ):
        with worker_port(server_tls(authority, host)) as gateway:
            failing = gateway.during(gateway.accept)
            with pytest.raises(GatewayRefuses, match=rf"^127\.0\.0\.1:\d+: .*{says}"):
                dialer(gateway.address, tls=client_tls(tmp_path / ca)).dial()
            assert isinstance(failing.exception(), OSError)


def test_a_launched_worker_trusts_one_certificate(authority: trustme.CA) -> None:
    """That one only, and no other certificate of the same authority."""
    given, other = (authority.issue_cert("127.0.0.1") for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    given.configure_cert(context)
    certificates = [one.cert_chain_pems[0].bytes().decode() for one in (given, other)]
    with worker_port(context) as gateway:
        admitting = gateway.during(gateway.admit)
        connected = dialer(gateway.address, tls=trusting(certificates[0])).dial()
        worker, _ = admitting.result()
        connected.connection.close()
        worker.close()
        failing = gateway.during(gateway.accept)
        with pytest.raises(GatewayRefuses, match="certificate"):
            dialer(gateway.address, tls=trusting(certificates[1])).dial()
        assert isinstance(failing.exception(), OSError)


def test_a_gateway_without_tls_is_unreachable_over_tls(authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with worker_port() as gateway:

        def talk() -> None:
            with contextlib.closing(gateway.accept()) as newcomer:
                newcomer.send(CHALLENGE)
                newcomer.gone()

        talking = gateway.during(talk)
        with pytest.raises(GatewayUnreachable, match="SSL"):
            dialer(gateway.address, tls=client_tls(tmp_path / "ca.pem")).dial()
        talking.result()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("gw:7000", [("gw", 7000)]),
        ("gw:7000, other:65535", [("gw", 7000), ("other", 65535)]),
        ("[::1]:1,10.0.0.1:2", [("::1", 1), ("10.0.0.1", 2)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    read = read_addresses(text)
    assert read == addresses
    assert ",".join(map(str, read)) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    ["", "gw", "gw:", ":7000", "gw:0", "gw:65536", "gw:-1", "gw:x", "gw:7000,", "a..b:7000"],
)
def test_other_texts_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address; give HOST:PORT, several separated by commas"):
        read_addresses(text)


def test_certificates_must_be_files_of_certificates() -> None:
    for ca, cert in ((Path("missing.pem"), None), (Path(__file__), None), (None, Path(__file__))):
        with pytest.raises((OSError, ValueError)):
            client_tls(ca, cert)
