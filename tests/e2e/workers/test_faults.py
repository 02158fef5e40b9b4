"""Workers that die or hang, clients that leave: everyone gets an answer."""

import asyncio
import os
import signal
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
def test_requests_wait_for_the_next_worker_if_it_will_be_in_time(one: Server) -> None:
    """The only worker is killed: a goal of a minute is worth waiting for, one of 10 ms is not."""
    os.kill(one.workers()[0], signal.SIGKILL)
    eventually(lambda: not one.ready())
    refused = HTTP.post(f"{one.base}/hasty", json=1)
    queued = HTTP.post(f"{one.base}/add", json=[1, 2])

    assert (refused.status_code, int(refused.headers["retry-after"]) >= 1) == (503, True)
    assert (queued.status_code, queued.json()) == (200, 3)
    assert one.metric("uncork_shed_total", api="add") == 0


def test_a_stopped_worker_is_replaced(one: Server) -> None:
    """To the gateway it hangs; it can be killed although it does not run."""
    [before] = one.workers()
    os.kill(before, signal.SIGSTOP)

    assert HTTP.post(f"{one.base}/hang", json=0).status_code == 504
    eventually(one.ready)
    assert answering(one) != before


def restarted(server: Server, times: int) -> bool:
    """Whether workers have been started again this many times."""
    return server.metric("uncork_worker_restarts_total") >= times


def exceeds(statuses: Counter[int], answers: int) -> bool:
    """Whether there are more good answers than this."""
    return statuses[200] > answers


def busy_worker(server: Server) -> int:
    workers = HTTP.get(f"{server.base}/status").json()["workers"]
    [busy] = [worker["pid"] for worker in workers if worker["state"] == "busy"]
    return int(busy)


def answering(server: Server) -> int:
    """Return the process that answers an API with a short timeout, which a busy machine may exceed."""
    replies = (HTTP.post(f"{server.base}/hang", json=0) for _ in count())
    process: int = next(reply for reply in replies if reply.status_code == 200).json()
    return process
