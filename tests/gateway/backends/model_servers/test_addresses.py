"""The addresses of model servers."""

import pytest

from uncork_gateway.backends.model_servers.server import are_grpc, read_addresses


def test_addresses_are_read_once_each() -> None:
    """In the given order; a slash at the end makes no difference."""
    addresses = read_addresses(["http://b:8080", "http://a", "http://b:8080/", "https://[::1]:8443"])
    assert [str(url) for url in addresses] == ["http://b:8080", "http://a", "https://[::1]:8443"]
    assert not are_grpc(addresses)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a:8080", "localhost", "ftp://a", "http://", "http://a/v1", "http://a?x=1", "http://a#x"),
        *("http://me:pass@a", "http://a:port", "http://a:99999", "http://a//b", "//a"),
        *("grpc://", "grpc://a:1/x", "grpc+tls://a:1"),
    ],
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a server address; write http://HOST:PORT or https://HOST:PORT, or grpc"
    ):
        read_addresses([text])


def test_there_must_be_a_server() -> None:
    with pytest.raises(ValueError, match="at least one server is required"):
        read_addresses([])


def test_servers_for_grpc_have_a_port() -> None:
    urls = ["grpc://a:8001", "grpcs://[::1]:443/"]
    addresses = read_addresses(urls)
    assert [str(address) for address in addresses] == ["grpc://a:8001", "grpcs://[::1]:443"]
    assert [(address.host, address.port) for address in addresses] == [("a", 8001), ("::1", 443)]
    assert are_grpc(addresses)
    with pytest.raises(ValueError, match=r"'grpc://a' is not .* a port is missing; gRPC has none by default"):
        read_addresses(["grpc://a"])


@pytest.mark.parametrize("urls", [["http://a", "grpc://b:1"], ["grpcs://b:1", "https://a"]])
def test_http_and_grpc_cannot_be_mixed(urls: list[str]) -> None:
    with pytest.raises(
        ValueError, match=f"all servers must speak the same protocol, .*got {', '.join(urls)}"
    ):
        read_addresses(urls)
