"""``uncork serve --on``: its options, and how workers on other machines reach the gateway."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from uncork.config.errors import WrongUsage
from uncork.server.credentials import server_tls
from uncork.server.options import ServeOptions
from uncork.server.workers.ray_placement import dialing
from uncork.server.workers.worker_port import read_place, read_worker_address
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.ray.messages import Connected
from uncork_workers.wire.certificates import ServerTls

ALONE = Connected("10.0.0.1", [])
WITH_OTHERS = Connected("10.0.0.1", ["10.0.0.2"])


@pytest.fixture
def local() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def everywhere() -> Iterator[socket.socket]:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        yield listener


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert read_place("local") is None
    assert read_place("ray") == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:1")
    assert read_place("ray") == "ray://head:1"
    for address in ("head:6379", "ray://head:10001", "[::1]:6379", "ray://[fd00::1]:10001"):
        assert read_place(address) == address
    for wrong in (
        "",
        "head",
        "http://head:1",
        "ray://head",
        "ray://head:1/x",
        "a b:1",
        "head:0",
        "head:65536",
        "ray://[::1]:99999",
    ):
        with pytest.raises(ValueError, match="is not a place for workers"):
            read_place(wrong)


def test_worker_addresses() -> None:
    assert read_worker_address("gw") == ("gw", None)
    assert read_worker_address("gw:7000") == ("gw", 7000)
    assert read_worker_address("[::1]") == ("::1", None)
    assert read_worker_address("[::1]:7000") == ("::1", 7000)
    for wrong in ("", ":7000", "gw:", "gw:x", "::1", "gw:0", "gw:65536", "[::1]:99999"):
        with pytest.raises(ValueError, match="is not an address"):
            read_worker_address(wrong)


def test_workers_dial_what_they_can_reach(local: socket.socket, everywhere: socket.socket) -> None:
    def address(options: ServeOptions, listener: socket.socket, connected: Connected) -> str:
        made = dialing(options, WorkerPort(listener=listener, token=b"the token"), connected)
        assert made.arguments[0] == "--gateway"
        return made.arguments[1]

    near, far = local.getsockname()[1], everywhere.getsockname()[1]
    named = ServeOptions(worker_address="gw")
    assert address(ServeOptions(), local, ALONE) == f"127.0.0.1:{near}"
    assert address(ServeOptions(), everywhere, WITH_OTHERS) == f"10.0.0.1:{far}"
    assert address(named, local, WITH_OTHERS) == f"gw:{near}"
    assert address(ServeOptions(worker_address="[::1]:1"), local, ALONE) == "[::1]:1"
    with pytest.raises(WrongUsage, match=re.escape("on other machines (10.0.0.2), which cannot reach")):
        address(ServeOptions(), local, WITH_OTHERS)


def test_workers_get_the_certificate_and_not_the_key(local: socket.socket, tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = server_tls(file, None, None, prefix="--worker-tls")
    assert context is not None
    port = WorkerPort(listener=local, token=b"x", tls=ServerTls(context))
    made = dialing(ServeOptions(worker_tls_cert=file), port, ALONE)

    certificate = made.environment["UNCORK_WORKER_CERTIFICATE"]
    assert certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert "PRIVATE" not in certificate
