"""Certificates, keys and tokens that are replaced in their files while the server runs."""

import re
import signal
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
import trustme

from tests.e2e.server import PROBE, Server, eventually, serving
from tests.e2e.workers.remote import remotes, wait_for, worker_port
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

pytestmark = pytest.mark.slow

KEYS = ("the-first-key-of-the-tests", "the-second-key-of-the-tests")


class Renewed:
    """The files of a server, each of which can be replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = [trustme.CA(), trustme.CA()]
        self.clients = [trustme.CA(), trustme.CA()]
        self.use(0)

    def use(self, generation: int) -> None:
        certificate = self.servers[generation].issue_cert("127.0.0.1", "localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(self.folder / "server.pem")
        self.clients[generation].cert_pem.write_to_path(self.folder / "clients.pem")
        (self.folder / "keys").write_text(KEYS[generation])

    @property
    def arguments(self) -> tuple[str, ...]:
        return (
            *("--tls-cert", str(self.folder / "server.pem"), "--api-key-file", str(self.folder / "keys")),
            *("--tls-client-ca", str(self.folder / "clients.pem"), "--admin-port", "0", "--grpc-port", "0"),
        )

    def context(self, server: int, client: int) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.servers[server].configure_trust(context)
        self.clients[client].issue_cert("client@tests").configure_cert(context)
        return context

    def status(self, url: str, server: int, client: int, key: int) -> int | str:
        """Return the status of a request on a connection of its own, or why there is none."""
        verify = self.context(server, client)
        headers = {"x-api-key": KEYS[key]}
        try:
            with httpx.Client(verify=verify, timeout=HANG_S) as http:
                return http.post(f"{url}/recall", json=[1], headers=headers).status_code
        except httpx.TransportError as error:
            return type(error).__name__

    def grpc_works(self, target: str, generation: int) -> bool:
        """Return whether a gRPC client of this generation gets a connection."""
        pair = self.clients[generation].issue_cert("client@tests")
        credentials = grpc.ssl_channel_credentials(
            self.servers[generation].cert_pem.bytes(),
            pair.private_key_pem.bytes(),
            pair.cert_chain_pems[0].bytes(),
        )
        with grpc.secure_channel(target, credentials) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=2)
            except grpc.FutureTimeoutError:
                return False
        return True


@pytest.fixture
def files(tmp_path: Path) -> Renewed:
    return Renewed(tmp_path)


def address(server: Server, pattern: str) -> str:
    found = re.search(pattern, server.output)
    assert found is not None, server.output
    return found[1]


def test_new_connections_use_the_files_of_the_latest_reload(files: Renewed) -> None:
    """Open connections stay. A broken file changes nothing."""
    with serving(PROBE, *files.arguments) as server:
        url = address(server, r"POST (https://[^/\s]+)/recall")
        target = server.grpc
        stays_open = httpx.Limits(keepalive_expiry=None)
        with httpx.Client(verify=files.context(0, 0), timeout=HANG_S, limits=stays_open) as open_client:
            assert open_client.get(f"{url}/livez").status_code == 200
            assert files.status(url, 0, 0, 0) == 200
            assert files.grpc_works(target, 0)

            files.use(1)
            (files.folder / "server.pem").write_text("nothing")
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: "reload failed" in server.output)
            assert "server.pem has no certificate in PEM format" in server.output
            assert files.status(url, 0, 0, 0) == 200

            files.use(1)
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: "settings changed: " in server.output)

            assert files.status(url, 1, 1, 1) == 200
            assert files.status(url, 1, 1, 0) == 401
            assert isinstance(files.status(url, 1, 0, 1), str)
            assert isinstance(files.status(url, 0, 1, 1), str)
            assert files.grpc_works(target, 1)
            assert not files.grpc_works(target, 0)
            assert open_client.get(f"{url}/livez").status_code == 200
    assert server.exit_code() == 0


def test_a_file_that_is_replaced_is_read_by_itself(files: Renewed) -> None:
    with serving(PROBE, *files.arguments, "--watch-config") as server:
        url = address(server, r"POST (https://[^/\s]+)/recall")
        files.use(1)

        eventually(lambda: files.status(url, 1, 1, 1) == 200)


def test_workers_need_the_new_token_and_the_new_certificate(tmp_path: Path) -> None:
    """A worker that is connected stays."""
    authorities = [trustme.CA(), trustme.CA()]
    for at, authority in enumerate(authorities):
        authority.cert_pem.write_to_path(tmp_path / f"ca-{at}.pem")
    cert = tmp_path / "server.pem"
    authorities[0].issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
    with remotes(tmp_path) as on, on.gateway("--worker-tls-cert", str(cert)) as server:
        port = worker_port(server)
        first = on.start(port, options=["--ca", str(tmp_path / "ca-0.pem")])
        wait_for(server, 1)

        authorities[1].issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "settings changed: " in server.output)
        outdated = on.start(port, options=["--ca", str(tmp_path / "ca-0.pem")])
        assert outdated.process.wait(HANG_S) != 0
        on.token_file.write_text("another token for these tests")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.output.count("settings changed: ") == 2)
        second = on.start(port, options=["--ca", str(tmp_path / "ca-1.pem")])
        wait_for(server, 2)

        assert first.process.poll() is None
        assert second.process.poll() is None
        assert "unable to get local issuer certificate" in outdated.output


def test_a_worker_that_connects_again_reads_its_files_again(tmp_path: Path) -> None:
    authorities = [trustme.CA(), trustme.CA()]
    cert, ca = tmp_path / "server.pem", tmp_path / "ca.pem"

    def use(generation: int) -> None:
        authority = authorities[generation]
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
        authority.cert_pem.write_to_path(ca)

    use(0)
    with remotes(tmp_path) as on, reserved_port() as port:
        arguments = ("--worker-port", str(port), "--worker-tls-cert", str(cert))
        with on.gateway(*arguments) as server:
            worker = on.start(f"127.0.0.1:{port}", options=["--ca", str(ca)])
            wait_for(server, 1)
            use(1)
            on.token_file.unlink()
            server.terminate()
            assert server.exit_code() == 0
        eventually(lambda: "connecting with what the files said before" in worker.output)
        on.token_file.write_text("another token for these tests")
        with on.gateway(*arguments) as server:
            wait_for(server, 1)
            assert worker.process.poll() is None
