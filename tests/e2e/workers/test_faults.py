"""Workers that die or hang, clients that leave: everyone gets an answer."""

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import httpx
import pytest

from tests.e2e.load import are_doubles, asking
from tests.e2e.server import HTTP, PROBE, SERVICES, Server, eventually, serving
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

    def answered() -> int:
        return sum(reply.status == 200 for reply in list(replies))

    before = two.metric("uncork_requests_total", api="add")
    restarts = round(two.metric("uncork_worker_restarts_total"))
    with asking(two, path="/add", clients=16, body=lambda number: [number, number]) as replies:
        for kills in range(restarts + 1, restarts + 4):
            os.kill(two.workers()[0], signal.SIGKILL)
            eventually(partial(restarted, two, kills))
            enough = answered() + 20
            eventually(lambda enough=enough: answered() >= enough)  # type: ignore[misc]
    eventually(lambda: two.metric("uncork_workers", state="idle") == 2)

    assert are_doubles(replies)
    assert {reply.status for reply in replies} <= {200, 502, 503}
    assert len(replies) == two.metric("uncork_requests_total", api="add") - before


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


@pytest.mark.slow
def test_a_worker_is_left_for_others_while_killers_are_retried() -> None:
    """Each killer costs three workers and gets 502; every other request is answered meanwhile."""
    workers, killers = 3, 2
    with (
        serving(f"{SERVICES / 'probe.py'}:Fragile", "--workers", str(workers)) as server,
        httpx.Client(base_url=server.base, timeout=HANG_S) as client,
        ThreadPoolExecutor(killers) as threads,
    ):
        eventually(lambda: server.metric("uncork_workers", state="idle") == workers)
        ends = [threads.submit(client.post, "/echo", json="kill") for _ in range(killers)]
        statuses = []
        while not all(end.done() for end in ends):
            statuses.append(client.post("/echo", json="x").status_code)

        assert set(statuses) == {200}
        assert [end.result().status_code for end in ends] == [502] * killers
        assert server.metric("uncork_batches_total", api="echo", outcome="lost") <= 3 * killers


def restarted(server: Server, times: int) -> bool:
    """Whether workers have been started again this many times."""
    return server.metric("uncork_worker_restarts_total") >= times


def busy_worker(server: Server) -> int:
    workers = HTTP.get(f"{server.base}/status").json()["workers"]
    [busy] = [worker["pid"] for worker in workers if worker["state"] == "busy"]
    return int(busy)


def answering(server: Server) -> int:
    """Return the process that answers an API with a short timeout, which a busy machine may exceed."""
    replies = (HTTP.post(f"{server.base}/hang", json=0) for _ in count())
    process: int = next(reply for reply in replies if reply.status_code == 200).json()
    return process
