"""What becomes of a batch that is lost twice: its requests are tried once more, one by one."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import core_with, starts
from tests.examples import at_most
from uncork_dispatcher.actions import Lost
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

RULES = ApiRules(name="a", max_batch_rows=3, goal_s=10.0)


def running_three(rules: ApiRules = RULES, *, workers: int = 1) -> Dispatcher:
    """A core whose worker 0 runs requests 1, 2 and 3 as batch 1 since time 0."""
    core = core_with(rules, workers=workers)
    for number in (1, 2, 3):
        core.submit(number, api="a", rows=1, size_bytes=10, now=0.0)
    [start] = starts(core.poll(0.0))
    assert start.requests == (1, 2, 3)
    return core


def quarantined(rules: ApiRules = RULES, *, workers: int = 2) -> Dispatcher:
    """A core that has queued requests 1, 2 and 3 in quarantine since 0.5.

    Its workers, one fewer than ``workers``, are numbered from 1.
    """
    core = running_three(rules)
    lose_twice(core, 0, now=0.5)
    for worker in range(1, workers):
        core.worker_ready(worker, now=0.5)
    return core


def lose_twice(core: Dispatcher, worker: int, *, now: float) -> None:
    """Lose a worker, then the new one that has taken its batch."""
    core.worker_lost(worker, now=now)
    core.worker_ready(-1 - worker, now=now)
    core.poll(now)
    core.worker_lost(-1 - worker, now=now)


def test_the_requests_of_a_batch_that_is_lost_twice_run_one_by_one() -> None:
    core = quarantined(workers=4)
    seen = []
    for now in (0.5, 0.6, 0.7):
        [start] = starts(core.poll(now))
        seen.append(start.requests)
        assert starts(core.poll(now)) == []
        assert core.batch_done(start.number, status="worked", now=now + 0.1)

    assert seen == [(1,), (2,), (3,)]
    assert core.is_empty


def test_on_an_only_worker_quarantined_requests_and_others_take_turns() -> None:
    core = quarantined(workers=1)
    core.worker_ready(1, now=1.0)
    for number in range(4, 10):
        core.submit(number, api="a", now=1.0)
    seen = []
    for number in itertools.count():
        now = 1.0 + number
        begun = starts(core.poll(now))
        if not begun:
            break
        seen.append(begun[0].requests)
        core.batch_done(begun[0].number, status="worked", now=now)

    assert seen == [(1,), (4, 5, 6), (2,), (7, 8, 9), (3,)]


def test_what_kills_alone_is_lost() -> None:
    core = quarantined(workers=3)
    core.poll(0.5)
    core.worker_lost(1, now=0.6)

    lost, again = core.poll(0.6)
    assert lost == Lost(1)
    assert isinstance(again, Batch)
    assert again.requests == (2,)
    assert core.poll(0.6) == []


@at_most(50)
@given(
    killers=st.sets(st.integers(0, 39), max_size=8),
    gaps=st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.2]), min_size=40, max_size=40),
    workers=st.integers(1, 4),
    limit_rows=st.sampled_from([1, 8, 64]),
    policy=st.sampled_from(["cork", "fixed:50", "none"]),
)
def test_what_kills_is_lost_and_all_others_are_answered(
    killers: set[int], gaps: list[float], workers: int, limit_rows: int, policy: str
) -> None:
    """Each killer costs three workers at most: twice with its batch, then alone. The others are answered."""
    core = core_with(
        ApiRules(name="a", goal_s=1e6, max_batch_rows=limit_rows, policy=policy), workers=workers
    )
    arrivals = list(itertools.accumulate(gaps))
    answered: list[int] = []
    lost: list[int] = []
    running: dict[float, list[Batch[Any]]] = {}
    ran: dict[int, int] = {}
    lost_batches: list[tuple[int, ...]] = []
    deaths, sent, now = 0, 0, 0.0
    while len(answered) + len(lost) < len(arrivals):
        times = [*arrivals[sent : sent + 1], *running, core.next_wakeup()]
        now = max(now, min(times))
        while sent < len(arrivals) and arrivals[sent] <= now:
            assert core.submit(sent, api="a", now=now) is None
            sent += 1
        for at in [at for at in running if at <= now]:
            for start in running.pop(at):
                if killers & set(start.requests):
                    lost_batches.append(start.requests)
                    core.worker_lost(start.worker, now=now)
                    core.worker_ready(workers + deaths, now=now)
                    deaths += 1
                else:
                    core.batch_done(start.number, status="worked", now=now)
                    answered += start.requests
        for action in core.poll(now):
            if isinstance(action, Batch):
                runs = {ran.get(one, 0) for one in action.requests}
                assert len(runs) == 1
                assert runs != {1} or action.requests in lost_batches, "a batch runs again as it was"
                assert runs != {2} or len(action.requests) == 1, "quarantined requests go alone"
                ran |= {one: ran.get(one, 0) + 1 for one in action.requests}
                running.setdefault(now + 0.05 + 0.001 * action.rows, []).append(action)
            else:
                assert isinstance(action, Lost)
                lost.append(action.request)
        retries_running = [one for each in running.values() for one in each if ran[one.requests[0]] > 2]
        assert len(retries_running) <= 1

    assert sorted(lost) == sorted(killers)
    assert sorted(answered) == sorted(set(range(40)) - killers)
    assert deaths <= 3 * len(killers)
    assert set(ran.values()) <= {1, 2, 3}
    assert core.is_empty
