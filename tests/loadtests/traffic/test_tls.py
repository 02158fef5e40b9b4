"""Load tests of servers that speak TLS, on real sockets."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
import uvloop

from tests.loadtests.fake_server import reply, serving
from uncork_loadtests.generator.share import run_here
from uncork_loadtests.traffic.plan import Payload, Plan, Tls

PLAN = Plan(
    url="https://replaced/", payload=Payload(bodies=(b"1",)), clients=2, seconds=5.0, warmup_s=0.0, limit=6
)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return str(tmp_path / "ca.pem")


def outcome(
    authority: trustme.CA, tls: Tls, *, host: str = "127.0.0.1", of_clients: bool = False
) -> list[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    if of_clients:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(body))

    async def run() -> list[int]:
        async with serving(echo, tls=context) as url:
            _, samples = await run_here(replace(PLAN, url=url, tls=tls))
            statuses: list[int] = samples["status"].tolist()
            return [status for status in statuses if status > 0]

    return uvloop.run(run())


def test_only_a_server_that_is_trusted_is_loaded(authority: trustme.CA, ca: str) -> None:
    assert outcome(authority, Tls(ca=ca)) == [200] * 6
    assert outcome(authority, Tls(insecure=True), host="example.org") == [200] * 6
    with pytest.raises(ConnectionError, match=r"not trusted: unable to get .*; see --ca and --insecure"):
        outcome(authority, Tls())
    with pytest.raises(
        ConnectionError, match=r"its certificate is not trusted: .*not valid for '127\.0\.0\.1'"
    ):
        outcome(authority, Tls(ca=ca), host="example.org")


def test_a_client_shows_its_certificate(authority: trustme.CA, ca: str, tmp_path: Path) -> None:
    made = authority.issue_cert("client")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = Tls(ca=ca, cert=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))

    assert outcome(authority, tls, of_clients=True) == [200] * 6
    assert outcome(authority, Tls(ca=ca), of_clients=True) == []
