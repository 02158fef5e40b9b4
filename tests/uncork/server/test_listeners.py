"""Where a server listens and who may come in: what of it is refused before anything starts."""

import os
import re
import socket
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from uncork.cli.serve.banner import grpc, pages
from uncork.config.errors import WrongUsage
from uncork.server import credentials
from uncork.server import listeners as listeners_module
from uncork.server.credentials import read_credentials, renewed
from uncork.server.listeners import open_listeners
from uncork.server.server_options import ServerOptions
from uncork_gateway.auth import ApiKeys, read_keys
from uncork_loadtests.servers import reserved_port

PLAIN = ServerOptions(port=0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    return file


def refusal(error: type[Exception] = WrongUsage, /, **options: Any) -> str:
    with pytest.raises(error) as refused, open_listeners(replace(PLAIN, **options)):
        pass
    return str(refused.value)


def test_the_address_says_how_to_come_in(certificate: Path) -> None:
    with open_listeners(PLAIN) as listeners:
        assert listeners.url == listeners.admin_url == f"http://127.0.0.1:{listeners.public.getsockname()[1]}"
        assert listeners.credentials.keys is None

    with open_listeners(replace(PLAIN, admin_port=0, tls_cert=certificate)) as listeners:
        assert listeners.admin is not None
        assert listeners.url == f"https://127.0.0.1:{listeners.public.getsockname()[1]}"
        assert listeners.admin_url == f"http://127.0.0.1:{listeners.admin.getsockname()[1]}"


def test_the_system_notices_a_client_that_vanishes() -> None:
    with open_listeners(PLAIN) as listeners, socket.create_connection(listeners.public.getsockname()):
        connection, _ = listeners.public.accept()
        with connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_unix_socket_comes_in_addition(tmp_path: Path) -> None:
    with open_listeners(PLAIN) as listeners:
        assert (listeners.unix, listeners.unix_path) == (None, "")
    with open_listeners(replace(PLAIN, uds=tmp_path / "s")) as listeners:
        assert listeners.unix_path == str(tmp_path / "s")
        assert next(str(line.text) for line in pages(listeners)) == f"  UNIX {tmp_path / 's'}"
        assert listeners.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("field", "option"), [("port", "--port"), ("admin_port", "--admin-port"), ("grpc_port", "--grpc-port")]
)
def test_a_port_in_use_is_told_with_its_option(field: str, option: str) -> None:
    """Two may be asked for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        says = refusal(OSError, **{field: taken.getsockname()[1]})
    assert re.search(
        rf"Address already in use by .* \(process {os.getpid()}\); choose another {option}$", says
    )


def has_ipv6() -> bool:
    """Whether a socket can listen on IPv6's loopback address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "admin_host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("::", "::1"),
        ("::", "127.0.0.1"),
    ],
)
def test_one_port_cannot_have_two_listeners(host: str, admin_host: str) -> None:
    """Wrong usage; also where one of the addresses stands for the other."""
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with reserved_port() as port:
        says = refusal(host=host, port=port, admin_host=admin_host, admin_port=port)
    assert f"are both {port}, and --host {host} overlaps with --admin-host {admin_host}; choose" in says


@pytest.mark.parametrize(("field", "option"), [("port", "--port"), ("admin_port", "--admin-port")])
def test_the_port_for_grpc_is_no_other_port(field: str, option: str) -> None:
    with reserved_port() as port:
        says = refusal(**{"grpc_port": port, field: port})
    assert says == f"{option} and --grpc-port are both {port}; choose another --grpc-port"


def test_grpc_has_a_port_with_the_same_tls(certificate: Path) -> None:
    """Zero picks a free one, which the banner prints."""
    with open_listeners(PLAIN) as listeners:
        assert (listeners.grpc, grpc(listeners)) == (None, [])

    options = replace(PLAIN, grpc_port=0, grpc_max_connection_age=60, tls_cert=certificate)
    with open_listeners(options) as listeners:
        assert listeners.grpc is not None
        address = f"127.0.0.1:{listeners.grpc.getsockname()[1]}"
        assert listeners.grpc_target == address
        assert listeners.grpc_tls is not None
        assert listeners.grpc_max_connection_age_s == 60
        [line] = grpc(listeners)
        assert line.text.plain == f"  gRPC {address}"


@pytest.mark.parametrize("package", ["grpcio", "hpack", "protobuf"])
def test_packages_that_are_missing_for_grpc_are_told(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(name: str) -> str:
        if name == package:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(listeners_module, "version", version_of)
    assert re.match(rf"--grpc-port requires {package}; run pip install .*'{package}\b", refusal(grpc_port=0))


def test_one_port_can_have_listeners_on_different_addresses() -> None:
    with reserved_port() as port:
        options = replace(PLAIN, host="127.0.0.2", port=port, admin_port=port)
        with open_listeners(options) as listeners:
            assert listeners.admin is not None
            assert listeners.public.getsockname()[1] == listeners.admin.getsockname()[1] == port


def test_a_port_is_taken_at_once() -> None:
    """A second server finds it in use, even if the first has not begun to serve."""
    with open_listeners(PLAIN) as listeners:
        assert "Address already in use" in refusal(OSError, port=listeners.port)


def test_a_system_without_a_limit_for_unread_answers_listens_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux has it."""
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)

    with open_listeners(PLAIN) as listeners, socket.create_connection(listeners.public.getsockname()):
        pass


def test_a_system_that_hides_who_listens_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS tells only the administrator; the rest of the message is the same."""

    def refuse(kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refuse)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        says = refusal(OSError, port=taken.getsockname()[1])
    assert "Address already in use; choose another --port" in says


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")])
def test_the_address_works_when_it_is_clicked(host: str, shown: str) -> None:
    with open_listeners(replace(PLAIN, host=host)) as listeners:
        assert listeners.url == f"http://{shown}:{listeners.port}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"host": "192.0.2.1"}, "Cannot assign requested address; choose a --host of this machine"),
        (
            {"admin_host": "192.0.2.1", "admin_port": 0},
            "Cannot assign requested address; choose a --admin-host of this machine, such as 127.0.0.1",
        ),
        ({"host": "no such host"}, "; choose another --host"),
        ({"host": ".example"}, "'.example': it is not the name of a host; choose another --host"),
    ],
)
def test_an_address_of_no_use_is_told(options: dict[str, Any], says: str) -> None:
    """Another port would not help."""
    assert says in refusal(OSError, **options)


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("k" * 16)
    options = replace(PLAIN, api_key_file=file)

    def read(path: Path) -> ApiKeys:
        keys = read_keys(path)
        path.write_text("l" * 16)
        return keys

    monkeypatch.setattr(credentials, "read_keys", read)
    first = read_credentials(options)

    assert renewed(first.contents, read_credentials(options).contents) == ["api_key_file"]
