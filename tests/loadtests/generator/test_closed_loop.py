"""The closed-loop generator against a scripted server on real sockets."""

import asyncio
import socket
from dataclasses import replace

import pytest

from tests.loadtests.fake_server import Handler, reply, serving
from tests.loops import HANG_S
from uncork_loadtests.generator.http_reply import ReplyError
from uncork_loadtests.generator.samples import LOST, UNANSWERED, Samples, Summary, summarise
from uncork_loadtests.generator.share import ShareResult, run_here
from uncork_loadtests.servers import reserved_port
from uncork_loadtests.traffic.plan import Payload, Plan

# The number of requests ends these runs.
BODIES = (b"a", b"bb")
PLAN = Plan(url="http://replaced/", payload=Payload(bodies=BODIES), clients=1, seconds=HANG_S, warmup_s=0.0)


def outcome(handler: Handler, *, plan: Plan) -> tuple[Summary, ShareResult, Samples]:
    async def run() -> tuple[ShareResult, Samples]:
        async with serving(handler) as url:
            return await run_here(replace(plan, url=url))

    result, samples = asyncio.run(run())
    return summarise(samples, seconds=result.measured_s), result, samples


async def shout(body: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer with the body in capitals, in a batch of 4."""
    writer.write(reply(body.upper(), fields="x-batch-size: 4\r\n"))


def test_every_request_is_counted_once() -> None:
    plan = replace(PLAN, clients=8, limit=100, payload=Payload(bodies=BODIES, expected=(b"A", b"BB")))

    summary, result, samples = outcome(shout, plan=plan)

    assert summary.statuses == {200: 100}
    assert len(samples) == 100
    assert summary.wrong == 0
    assert summary.answered_per_s == pytest.approx(100 / result.measured_s)
    assert (summary.batch_rows_by_answer, summary.batch_rows_by_batch) == (4.0, 4.0)
    assert summary.latency is not None
    assert 0 < summary.latency.mean_ms <= summary.latency.max_ms
    assert sorted(samples["body_bytes"]) == [1] * 50 + [2] * 50


def test_time_ends_a_run_and_the_warm_up_is_left_out() -> None:
    plan = replace(PLAN, clients=2, warmup_s=0.03, seconds=0.03)

    summary, result, samples = outcome(shout, plan=plan)

    is_measured = samples["scheduled_s"] >= 0
    assert result.measured_s >= 0.03
    assert sum(summary.statuses.values()) == is_measured.sum() < len(samples)
    assert UNANSWERED not in samples["status"]


def test_a_wrong_answer_is_noticed() -> None:
    plan = replace(PLAN, clients=2, limit=10, payload=Payload(bodies=BODIES, expected=(b"A", b"CC")))

    summary, result, _ = outcome(shout, plan=plan)

    assert summary.wrong == 5
    assert result.first_wrong == "sent b'bb', expected b'CC', got b'BB'"


async def answer_by_body(body: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer 0, refuse 1, answer 2 as the last, and break off 3."""
    replies = {
        b"1": reply(b"busy", status="503 Service Unavailable"),
        b"2": reply(body, fields="Connection: close\r\n"),
        b"3": reply(body)[:-1],
    }
    writer.write(replies.get(body, reply(body)))
    if body in (b"2", b"3"):
        writer.close()


def test_requests_that_fail_are_counted_and_their_connections_replaced() -> None:
    bodies = (b"0", b"1", b"2", b"3")
    plan = replace(PLAN, clients=3, limit=40, payload=Payload(bodies=bodies, expected=bodies))

    summary, result, _ = outcome(answer_by_body, plan=plan)

    assert summary.statuses == {200: 20, 503: 10, LOST: 10}
    assert summary.wrong == 0
    assert summary.answered_per_s == pytest.approx(20 / result.measured_s)


def test_clients_think_between_their_requests() -> None:
    _, _, once = outcome(shout, plan=replace(PLAN, clients=4, think_s=60.0, seconds=0.03))
    _, result, samples = outcome(shout, plan=replace(PLAN, clients=2, think_s=0.005, limit=6))

    assert len(once) == 4
    assert samples["status"].tolist() == [200] * 6
    assert result.measured_s >= 0.01


def test_clients_think_after_a_lost_connection_too() -> None:
    lost = replace(PLAN, think_s=0.01, limit=4, payload=Payload(bodies=(b"3",)))
    _, _, samples = outcome(answer_by_body, plan=lost)

    assert samples["status"].tolist() == [LOST] * 4
    assert (samples["scheduled_s"][1:] >= samples["sent_s"][:-1] + lost.think_s).all()


@pytest.mark.parametrize("body", [b"2", b"3"], ids=["closed", "lost"])
def test_the_wait_for_a_new_connection_is_no_lag(body: bytes) -> None:
    """It outlasts the think time."""
    plan = replace(PLAN, think_s=1e-9, limit=4, payload=Payload(bodies=(body,)))
    _, _, samples = outcome(answer_by_body, plan=plan)

    later = samples[1:]
    assert later["fired_s"].tolist() == later["scheduled_s"].tolist()
    assert (later["sent_s"] > later["fired_s"]).all()


async def test_no_server_is_said_clearly() -> None:
    with (
        reserved_port() as port,
        pytest.raises(ConnectionError, match=rf"cannot connect to 127\.0\.0\.1:{port}"),
    ):
        await run_here(replace(PLAN, url=f"http://127.0.0.1:{port}/"))


async def test_a_server_that_goes_away_is_said_clearly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        loop = asyncio.get_running_loop()
        driven = loop.create_task(run_here(replace(PLAN, url=url, clients=1)))
        taken, _ = await loop.sock_accept(listener)
        await loop.sock_recv(taken, 1000)
        listener.close()
        taken.close()
        with pytest.raises(ConnectionError, match="cannot connect"):
            await driven


def test_a_server_that_speaks_something_else_ends_the_run() -> None:
    async def ssh(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    with pytest.raises(ReplyError, match="not an HTTP"):
        outcome(ssh, plan=replace(PLAN, clients=2))
