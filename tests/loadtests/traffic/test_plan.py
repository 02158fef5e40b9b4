"""Plans: schedule, requests, TLS, and invalid values."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.loadtests.fake_server import reply, serving
from uncork_loadtests.generator.loops import share_of
from uncork_loadtests.generator.share import run_here
from uncork_loadtests.traffic.plan import Payload, Plan, Tls

BODY = Payload(bodies=(b"[1]",))
OPEN = Plan(url="http://127.0.0.1:8080/a/b?c=d", payload=BODY, rate=100.0, seconds=5.0, warmup_s=2.0)


def test_the_seed_decides_the_schedule() -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(OPEN), type=Plan)
    assert sent == OPEN
    assert sent.schedule() == OPEN.schedule()
    assert replace(OPEN, limit=7).schedule() == OPEN.schedule()[:7]
    assert OPEN.schedule() != replace(OPEN, seed=2).schedule()


@pytest.mark.parametrize("kind", ["constant", "poisson", "gamma:2", "onoff", "ramp", "step", "spike"])
def test_the_warm_up_lies_before_zero(kind: str) -> None:
    times = replace(OPEN, arrivals=kind, rate=1000.0).schedule()
    before = [time for time in times if time < 0]

    assert times == sorted(times)
    assert times[0] >= -2.0
    assert times[-1] < 5.0
    assert len(before) == pytest.approx(2000, rel=0.1)
    assert len(times) - len(before) == pytest.approx(5000, rel=0.25)


def test_what_is_measured_does_not_depend_on_the_warm_up() -> None:
    short, long = (replace(OPEN, warmup_s=seconds).schedule() for seconds in (0.0, 3.0))

    assert [time for time in long if time >= 0] == short


def test_a_recording_without_a_rate_comes_as_it_was_recorded(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("10.0\n10.5\n12.0\n")
    plan = replace(OPEN, arrivals=f"replay:{trace}", rate=None, seconds=2.1, warmup_s=0.0)

    assert plan.schedule() == pytest.approx([0.0, 0.5, 2.0])
    assert plan.average_rate == pytest.approx(1.0)


@at_most(50)
@given(count=st.integers(1, 500), processes=st.integers(1, 20))
def test_shares_make_up_the_whole(count: int, processes: int) -> None:
    plan = replace(OPEN, processes=processes)
    shares = [share_of(count, plan, index) for index in range(processes)]

    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1


def test_the_head_has_path_query_and_fields() -> None:
    assert OPEN.address == ("127.0.0.1", 8080)
    assert replace(OPEN, headers=(("X-A", "b c"),)).head() == (
        b"POST /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
        b"Content-Type: application/json\r\nX-A: b c\r\nContent-Length: "
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": "ftp://h/"}, "url must look like http"),
        ({"url": "h:80"}, "url must look like http"),
        ({"url": "http://h:99999/"}, "url must look like http"),
        ({"url": "http://h:x/"}, "url must look like http"),
        ({"url": "http://h:0/"}, "url must look like http"),
        ({"clients": 0}, "clients must be at least 1"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"seconds": 0.0}, "seconds must be above 0"),
        ({"seconds": float("inf")}, "seconds must be above 0"),
        ({"warmup_s": -1.0}, "warmup_s must be at least 0"),
        ({"think_s": float("nan")}, "think_s must be at least 0"),
        ({"goal_s": 0.0}, "goal_s must be above 0"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"rate": None}, "poisson arrivals require a rate"),
        ({"arrivals": "poison"}, "unknown arrivals 'poison'"),
        ({"processes": 3, "max_connections": 2}, "max_connections must be at least 3, one for each process"),
        ({"processes": 3, "clients": 2}, "clients must be at least 3, one for each process, not 2"),
    ],
)
def test_wrong_values_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(OPEN, **changed)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "must have either bodies, random rows or a function"),
        ({"bodies": (b"a",), "function": "m:f"}, "must have either bodies, random rows or a function"),
        ({"bodies": (b"a",), "expected": (b"a", b"b")}, "1 body but 2 expected"),
    ],
)
def test_wrong_payloads_are_named(payload: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Payload(**payload)


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
