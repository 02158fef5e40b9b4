"""Workers that die or hang, clients that leave: everyone gets an answer."""

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count

import httpx
import pytest

from tests.e2e.server import HTTP, PROBE, Server, eventually, serving
from tests.loops import HANG_S


@pytest.fixture(scope="module")
def of_one() -> Iterator[Server]:
    """A server with one worker, which each test leaves with a new worker."""
    with serving(PROBE) as server:
        yield server


@pytest.fixture
def one(of_one: Server) -> Server:
    """The server with one worker, when the worker is idle."""
    eventually(lambda: of_one.metric("uncork_workers", state="idle") == 1)
    return of_one


@pytest.fixture(scope="module")
def of_two() -> Iterator[Server]:
    """A server with two workers, which each test leaves with new workers."""
    with serving(PROBE, "--workers", "2") as server:
        yield server


@pytest.fixture
def two(of_two: Server) -> Server:
    """The server with two workers, when both are idle."""
    eventually(lambda: of_two.metric("uncork_workers", state="idle") == 2)
    return of_two


def test_killing_workers_under_load_loses_nothing(two: Server) -> None:
    """Every request gets one answer, right or an honest error, while workers are killed again and again."""

    async def client(server: Server, number: int, stop: asyncio.Event, statuses: Counter[int]) -> None:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S, verify=False) as http:
            n = 0
            while not stop.is_set():
                n += 1
                reply = await http.post("/add", json=[number, n])
                statuses[reply.status_code] += 1
                if reply.status_code == 200:
                    assert reply.json() == number + n
                else:
                    assert reply.status_code in (502, 503)
                    await asyncio.sleep(0.02)

    async def run(server: Server) -> Counter[int]:
        stop = asyncio.Event()
        statuses: Counter[int] = Counter()
        clients = [asyncio.create_task(client(server, number, stop, statuses)) for number in range(16)]
        earlier = round(server.metric("uncork_worker_restarts_total"))
        for kills in range(earlier + 1, earlier + 4):
            os.kill(server.workers()[0], signal.SIGKILL)
            await asyncio.to_thread(eventually, partial(restarted, server, kills))
            await asyncio.to_thread(eventually, partial(exceeds, statuses, statuses[200] + 20))
        stop.set()
        await asyncio.gather(*clients)
        return statuses

    before = two.metric("uncork_requests_total", api="add")
    statuses = asyncio.run(run(two))
    eventually(lambda: two.metric("uncork_workers", state="idle") == 2)

    assert statuses[200] >= 60
    assert sum(statuses.values()) == two.metric("uncork_requests_total", api="add") - before


def test_a_batch_whose_worker_was_killed_is_run_again_elsewhere(two: Server) -> None:
    """The client of an idempotent api does not notice; the other worker answers."""

    async def run(server: Server) -> tuple[httpx.Response, int]:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
            before = server.workers()
            # Which of the two runs it is not known from outside. Both are stopped: neither finishes it.
            for worker in before:
                os.kill(worker, signal.SIGSTOP)
            waiting = asyncio.create_task(http.post("/sleep", json=0))
            await asyncio.to_thread(eventually, lambda: server.metric("uncork_workers", state="busy") == 1)
            busy = busy_worker(server)
            os.kill(busy, signal.SIGKILL)
            [other] = {*before} - {busy}
            os.kill(other, signal.SIGCONT)
            return await waiting, other

    reply, other = asyncio.run(run(two))

    assert (reply.status_code, reply.json()) == (200, other)


@pytest.mark.slow
def test_what_kills_three_workers_gets_502(two: Server) -> None:
    """It runs twice more, then fails; the service keeps running."""
    reply = HTTP.post(f"{two.base}/die", json=1)
    assert reply.status_code == 502
    assert "worker died" in reply.json()["detail"]
    assert two.metric("uncork_batches_total", api="die", outcome="lost") == 3

    eventually(two.ready)
    assert HTTP.post(f"{two.base}/add", json=[1, 2]).json() == 3


@pytest.mark.slow
def test_requests_wait_for_the_next_worker_if_it_will_be_in_time(one: Server) -> None:
    """The only worker is killed: a goal of a minute is worth waiting for, one of 10 ms is not."""
    os.kill(one.workers()[0], signal.SIGKILL)
    eventually(lambda: not one.ready())
    refused = HTTP.post(f"{one.base}/hasty", json=1)
    queued = HTTP.post(f"{one.base}/add", json=[1, 2])

    assert (refused.status_code, int(refused.headers["retry-after"]) >= 1) == (503, True)
    assert (queued.status_code, queued.json()) == (200, 3)
    assert one.metric("uncork_shed_total", api="add") == 0


def test_what_must_not_run_twice_gets_502_at_once(one: Server) -> None:
    async def run(server: Server) -> httpx.Response:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
            waiting = asyncio.create_task(http.post("/sleep_once", json=20))
            await asyncio.to_thread(eventually, lambda: server.metric("uncork_workers", state="busy") == 1)
            os.kill(server.workers()[0], signal.SIGKILL)
            return await waiting

    assert asyncio.run(run(one)).status_code == 502


def test_a_hung_worker_is_replaced(one: Server) -> None:
    """A batch past its timeout gets 504, its worker is killed, and the next request is answered."""
    before = one.workers()

    reply = HTTP.post(f"{one.base}/hang", json=60)

    assert reply.status_code == 504
    eventually(one.ready)
    assert answering(one) not in before


def test_a_stopped_worker_is_replaced(one: Server) -> None:
    """To the gateway it hangs; it can be killed although it does not run."""
    [before] = one.workers()
    os.kill(before, signal.SIGSTOP)

    assert HTTP.post(f"{one.base}/hang", json=0).status_code == 504
    eventually(one.ready)
    assert answering(one) != before


def test_a_client_that_leaves_is_taken_out_of_the_queue() -> None:
    async def run(server: Server) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
            first = asyncio.create_task(http.post("/remember", json="first"))
            await asyncio.to_thread(eventually, lambda: held(server) == 1)
            with leaving(server, b'"left"') as connection:
                await asyncio.to_thread(eventually, lambda: held(server) == 2)
                last = asyncio.create_task(http.post("/remember", json="last"))
                await asyncio.to_thread(eventually, lambda: held(server) == 3)
                connection.close()
            await asyncio.to_thread(eventually, lambda: held(server) == 2)
            await asyncio.to_thread(
                eventually, lambda: server.metric("uncork_requests_total", status="499") == 1
            )
            server.terminate()
            return [await first, await last]

    with serving(PROBE, "--policy", "fixed:600000") as server:
        replies = asyncio.run(run(server))

        assert [reply.json() for reply in replies] == ["first", "last"]
        assert [reply.headers["x-batch-size"] for reply in replies] == ["2", "2"]


def restarted(server: Server, times: int) -> bool:
    """Whether workers have been started again this many times."""
    return server.metric("uncork_worker_restarts_total") >= times


def exceeds(statuses: Counter[int], answers: int) -> bool:
    """Whether there are more good answers than this."""
    return statuses[200] > answers


def busy_worker(server: Server) -> int:
    """Return the process of the only busy worker."""
    workers = HTTP.get(f"{server.base}/status").json()["workers"]
    [busy] = [worker["pid"] for worker in workers if worker["state"] == "busy"]
    return int(busy)


def answering(server: Server) -> int:
    """Return the process that answers an API with a short timeout, which a busy machine may exceed."""
    replies = (HTTP.post(f"{server.base}/hang", json=0) for _ in count())
    process: int = next(reply for reply in replies if reply.status_code == 200).json()
    return process


def held(server: Server) -> float:
    """Rows held for the api that remembers."""
    return server.metric("uncork_queue_rows", api="remember")


def leaving(server: Server, body: bytes) -> socket.socket:
    """A connection that has sent a request and can be closed before the answer."""
    host, _, port = server.base.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(
        b"POST /remember HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    return connection
