"""Reads the addresses of model servers."""

from collections.abc import Sequence

import httpx

_SCHEMES = ("http", "https", "grpc", "grpcs")
_GRPC = ("grpc", "grpcs")


def read_addresses(urls: Sequence[str]) -> list[httpx.URL]:
    """Return the servers' addresses without duplicates.

    Raises:
        ValueError: if there are none, a URL is invalid, or HTTP and gRPC are mixed.
    """
    addresses = list(dict.fromkeys(_read_address(url) for url in urls))
    if not addresses:
        raise ValueError("at least one server is required")
    if len({are_grpc([address]) for address in addresses}) > 1:
        raise ValueError(
            "all servers must speak the same protocol, either HTTP (http://, https://) or gRPC (grpc://, "
            f"grpcs://), got {', '.join(map(str, addresses))}; run a proxy for each"
        )
    return addresses


def are_grpc(addresses: Sequence[httpx.URL]) -> bool:
    """Return True if the addresses are gRPC servers."""
    return addresses[0].scheme in _GRPC


def _read_address(text: str) -> httpx.URL:
    wrong = (
        f"{text!r} is not a server address; write http://HOST:PORT or https://HOST:PORT, or grpc://HOST:PORT "
        "or grpcs://HOST:PORT for gRPC"
    )
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL as error:
        raise ValueError(f"{wrong}: {error}") from None
    more = url.userinfo or url.raw_path != b"/" or url.fragment
    if url.scheme not in _SCHEMES or not url.host or more or not (url.port or 1) < 2**16:
        raise ValueError(wrong)
    if url.scheme in _GRPC and url.port is None:
        raise ValueError(f"{wrong}: a port is missing; gRPC has none by default, many servers use 8001")
    return url
