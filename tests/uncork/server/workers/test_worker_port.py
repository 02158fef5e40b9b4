"""The worker port of ``uncork serve``: its options, and what of them is refused before anything starts."""

import errno
import socket
import ssl
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from uncork.server.credentials import read_worker_credentials
from uncork.server.workers.worker_port import (
    WorkerPortOptions,
    check_worker_port,
    open_worker_port,
    waiting_for_workers,
)
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.wire.certificates import ServerTls

PLAIN = WorkerPortOptions()


def opened(given: WorkerPortOptions, *, workers: int) -> AbstractContextManager[WorkerPort | None]:
    return open_worker_port(given, read_worker_credentials(given, on_ray=False), workers=workers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("port")
    (made / "token").write_text("  0123456789abcdef\n")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(made / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(made / "cert.pem")
    return made


def options(folder: Path, **changes: Any) -> WorkerPortOptions:
    """Options of a port; texts of ``changes`` that name files are those in the folder."""
    files = {
        name: folder / value if name.endswith(("file", "cert", "key", "ca")) else value
        for name, value in {"worker_token_file": "token", **changes}.items()
    }
    return replace(PLAIN, **{"worker_port": 0, **files})


def test_a_server_has_no_worker_port_unless_it_is_asked_for() -> None:
    with opened(PLAIN, workers=1) as port:
        assert port is None


@pytest.mark.parametrize("workers", [0, 3])
def test_a_worker_port_listens_with_the_token(folder: Path, workers: int) -> None:
    with opened(options(folder), workers=workers) as port:
        assert port is not None
        assert (port.token, port.tls) == (b"0123456789abcdef", None)
        socket.create_connection(port.listener.getsockname()).close()
    assert port.listener.fileno() == -1


@pytest.mark.parametrize("of_workers", [False, True])
def test_a_worker_port_with_tls_may_listen_everywhere(folder: Path, of_workers: bool) -> None:
    more = {"worker_tls_client_ca": "ca.pem"} if of_workers else {}
    right = options(folder, worker_host="0.0.0.0", worker_tls_cert="cert.pem", **more)
    with opened(right, workers=0) as port:
        assert port is not None
        assert port.tls is not None
        assert port.tls.context.verify_mode == (ssl.CERT_REQUIRED if of_workers else ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("host", "insecure"),
    [("127.0.0.1", False), ("127.0.0.2", False), ("localhost", False), ("0.0.0.0", True)],
)
def test_a_port_may_lack_tls_on_this_machine_and_where_that_is_accepted(
    folder: Path, host: str, insecure: bool
) -> None:
    right = options(folder, worker_host=host, worker_insecure=insecure)
    with opened(right, workers=0) as port:
        assert port is not None


def test_of_several_services_one_with_a_port_is_enough(folder: Path) -> None:
    check_worker_port(options(folder, worker_port=None, worker_tls_cert="cert.pem"), has_port=True)
    check_worker_port(PLAIN, has_port=False)


def test_a_port_in_use_is_told_with_its_option(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        occupied = replace(options(folder), worker_port=taken.getsockname()[1])
        with (
            pytest.raises(OSError, match=r"choose another --worker-port$") as raised,
            opened(occupied, workers=1),
        ):
            pass
    assert raised.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(("host", "dialed"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "HOST")])
@pytest.mark.parametrize("with_tls", [False, True])
def test_the_banner_says_how_to_start_a_worker(host: str, dialed: str, with_tls: bool) -> None:
    """With a word in place of an address that other machines cannot dial."""
    with socket.create_server((host, 0)) as listener:
        port = WorkerPort(
            listener=listener,
            token=b"",
            tls=ServerTls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) if with_tls else None,
        )
        target = "" if with_tls else "iris.py:Iris"
        text = waiting_for_workers(port, "http://here", target=target, token_file=Path("t"))
        number = listener.getsockname()[1]

    ca = " --ca FILE" if with_tls else ""
    assert text == (
        f"workers can connect to {host}:{number}: uncork worker {target or 'TARGET'} "
        f"--gateway {dialed}:{number} --token-file t{ca}; see http://here/status"
    )
