"""The core when rows have lengths: who shares a batch, and what is learned from it."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.lengths import Known, row_lengths
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients

FIXED_S, TOKEN_S = 0.010, 0.0001
"""A batch costs as much as 100 tokens besides its own."""


class Padded:
    """A core whose only worker pads each batch to its longest row."""

    def __init__(
        self, *, workers: int = 1, padding: float = 1.0, fixed_s: float = FIXED_S, **limits: object
    ) -> None:
        rules: dict[str, object] = {"policy": "fixed:0", "goal_s": 60.0, "max_batch_rows": 10_000, **limits}
        self.core = core_with(ApiRules(name="a", **rules), workers=workers)  # type: ignore[arg-type]
        self.now = 0.0
        self.submitted = 0
        self.padding = padding
        self.fixed_s = fixed_s
        self.lengths: dict[int, float] = {}
        """By request."""

    def submit(self, *lengths: float, flow: Hashable = None) -> list[int]:
        """Queue requests of one row each; return their numbers."""
        first = self.submitted + 1
        for length in lengths:
            self.submitted += 1
            self.lengths[self.submitted] = length
            refused = self.core.submit(self.submitted, api="a", now=self.now, rows=length, count=1, flow=flow)
            assert refused is None
        return list(range(first, self.submitted + 1))

    def start(self) -> Batch[Any]:
        [start] = starts(poll_all(self.core, self.now))
        return start

    def finish(self, start: Batch[Any]) -> None:
        """Let a batch take its time."""
        size = start.rows + self.padding * (start.padded - start.rows)
        self.now += self.fixed_s + TOKEN_S * size
        assert self.core.batch_done(start.number, status="worked", now=self.now)

    def teach(self) -> None:
        """Let batches of many sizes run, one after another."""
        for lengths in [(10,), (100,), (400,), (50, 60), (100, 130)] * 4:
            self.submit(*lengths)
            self.finish(self.start())
            assert poll_all(self.core, self.now) == []

    def run_all(self) -> list[tuple[int, ...]]:
        """Run what is queued; return the requests of each batch."""
        batches = []
        while batch := starts(poll_all(self.core, self.now)):
            for start in batch:
                batches.append(start.requests)
                self.finish(start)
        return batches


def busy(**limits: object) -> tuple[Padded, Batch[Any]]:
    """Return a core that knows its model, and the batch that its worker runs."""
    on = Padded(**limits)  # type: ignore[arg-type]
    on.teach()
    on.submit(10)
    return on, on.start()


@pytest.mark.parametrize(
    ("limits", "lengths", "batches"),
    [
        ({}, (10, 12, 11, 400, 390, 9, 13, 410), [(10, 12, 11, 9, 13), (400, 390, 410)]),
        ({}, (60, 40, 50), [(60, 40, 50)]),
        ({"allowed_lengths": (64, 512)}, (10, 60, 100, 500, 600), [(10, 60), (100, 500, 600)]),
    ],
    ids=["similar lengths", "a little padding", "lengths that the model pads to one step"],
)
@pytest.mark.parametrize("drains", [False, True])
def test_requests_share_a_batch_if_that_costs_little_padding(
    limits: dict[str, object], lengths: tuple[float, ...], batches: list[tuple[float, ...]], drains: bool
) -> None:
    """The most urgent decides which; the others follow in their order."""
    on, first = busy(**limits)
    on.submit(*lengths)
    if drains:
        on.core.drain(now=on.now)
    on.finish(first)
    assert [tuple(on.lengths[one] for one in requests) for requests in on.run_all()] == batches


@pytest.mark.parametrize(
    ("limits", "lengths", "sizes"),
    [
        ({"max_batch_rows": 100}, (30, 50, 20), [(2, 80, 100), (1, 20, 20)]),
        ({"allowed_batch_sizes": (2, 4)}, [10] * 7, [(4, 40, 40), (3, 30, 40)]),
        ({"allowed_lengths": (64, 512)}, (600,), [(1, 600, 512)]),
    ],
    ids=["limit", "numbers of rows that the model pads to", "a length beyond those of the model"],
)
def test_the_size_of_a_batch_counts_padding(
    limits: dict[str, object], lengths: tuple[float, ...], sizes: list[tuple[int, float, float]]
) -> None:
    on = Padded(**limits)  # type: ignore[arg-type]
    for length in (10, 40):  # shows what a batch costs
        on.submit(length)
        on.run_all()
    on.submit(*lengths)
    found = []
    for _ in sizes:
        start = on.start()
        found.append((len(start.requests), start.rows, start.padded))
        on.finish(start)
    assert found == sizes


def test_where_padding_takes_no_time_all_lengths_mix() -> None:
    """Once that was learned."""
    on = Padded(padding=0.0)
    on.teach()
    random_ = random.Random(1)
    for _ in range(60):
        on.submit(*[random_.choice([10, 100, 400]) for _ in range(8)])
        on.run_all()
    [stats] = on.core.stats(now=on.now)
    assert stats.padding is not None
    assert stats.padding.share == 0
    on.submit(10)
    first = on.start()
    queued = on.submit(10, 400, 20)
    on.finish(first)
    assert on.run_all() == [tuple(queued)]


LENGTH = 128.0
"""A power of two: its multiples are exact."""


def decisions(run: Run) -> list[object]:
    """Return each start, and each refusal."""
    batches = [(one.worker, one.started, one.requests, one.reason, one.predicted_s) for one in run.batches]
    return [*batches, *[(at, shed.request, shed.reason) for at, shed in run.shed]]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("policy", ["cork", "fixed:5"])
def test_equal_lengths_change_nothing(policy: str, workers: int) -> None:
    """Batch by batch the same as where no lengths are known, in a closed loop and under overload."""
    random_ = random.Random(7)
    arrivals = [0.0]
    while len(arrivals) < 300:
        arrivals.append(arrivals[-1] + random_.expovariate(3000 * workers))
    scenario = Scenario(
        service=ServiceTime(intercept_s=0.005, slope_s=1e-6, padding=1.0, noise_cv=0.2),
        arrivals=Clients(count=30),
        workers=workers,
        limit_rows=int(64 * LENGTH),
        policy=policy,
        requests=300,
    )
    for one in (scenario, replace(scenario, arrivals=arrivals, goal_s=0.05)):
        with_lengths = simulate(replace(one, lengths=lambda _: LENGTH))
        assert decisions(with_lengths) == decisions(simulate(replace(one, rows=lambda _: LENGTH)))


def padded_threefold(**limits: object) -> Padded:
    """Return a core that has seen only requests whose rows cost 100, and 300 with padding."""
    on = Padded(**limits)  # type: ignore[arg-type]
    for number in range(60):
        on.core.submit(9000 + number, api="a", now=on.now, rows=100, count=6, longest=50)
        if number % 2:
            on.core.submit(8000 + number, api="a", now=on.now, rows=100, count=6, longest=50)
        on.now += 10.0
        on.run_all()
    return on


def test_a_queue_is_full_with_the_usual_padding() -> None:
    """Requests of cost 100 count 300, so two fill a batch of 600; the policy would wait for more."""
    on = padded_threefold(max_batch_rows=600, policy="fixed:1000")
    for number in (1, 2, 3):
        assert poll_all(on.core, on.now) == []
        on.core.submit(number, api="a", now=on.now, rows=100, count=6, longest=50)
    assert on.start().requests == (1, 2)


def test_lengths_mix_until_batches_have_shown_that_the_model_pads() -> None:
    """If the batch is no slower than its requests one by one: here, three more would cost 300 tokens.

    Five batches with padding show it; then this much of it is worth two batches.
    """
    on = Padded()
    for length in (10, 50, 100, 200, 400) * 2:
        on.submit(length)
        on.run_all()
    mixed = []
    for _ in range(8):
        first = on.submit(10)
        start = on.start()
        queued = on.submit(10, 110, 10, 110)
        on.finish(start)
        mixed.append(on.run_all()[0] == tuple(queued))
        assert start.requests == tuple(first)
    assert mixed == [True] * 5 + [False] * 3


@pytest.mark.parametrize("known", ["costs", "bytes"])
def test_a_cold_start_does_not_wait_for_long_mixed_batches(known: Known) -> None:
    """A batch of all clients takes ten times as long as its requests one by one."""
    scenario = Scenario(
        service=ServiceTime(intercept_s=0.00016, slope_s=0.00002, padding=1.0),
        arrivals=Clients(count=64),
        limit_rows=16_384,
        goal_s=1e3,
        requests=400,
        lengths=row_lengths("bimodal:16:512:0.1").draw,
        known=known,
    )
    cork, alone = (simulate(replace(scenario, policy=policy)).answered for policy in ("cork", "none"))
    assert cork[-1].finish < 3 * alone[-1].finish


def of_bodies(measure: str, *, seed: int = 1) -> tuple[Dispatcher, list[tuple[int, ...]]]:
    """Run requests without a cost whose bodies differ much, under a model with this measure.

    Returns the core and the sizes of the bodies in each of the last batches.
    """
    core, random_ = (
        core_with(ApiRules(name="a", policy="fixed:0", goal_s=60.0, max_batch_rows=6)),
        random.Random(seed),
    )
    now, bodies, batches = 0.0, dict[int, int](), list[tuple[int, ...]]()
    for number in range(1, 3000):
        bodies[number] = random_.choice([40, 400, 4000]) + random_.randrange(8)
        assert core.submit(number, api="a", now=now, size_bytes=bodies[number]) is None
        if number % 12:
            continue
        while batch := starts(poll_all(core, now)):
            [start] = batch
            sizes = [bodies[request] for request in start.requests]
            work = {"rows": 2000 * len(sizes), "sum": sum(sizes), "longest": len(sizes) * max(sizes)}[measure]
            now += 0.0002 + 2e-6 * work
            core.batch_done(start.number, status="worked", now=now)
            batches.append(tuple(sizes))
    return core, batches[-100:]


@pytest.mark.parametrize(
    ("measure", "found"), [("rows", None), ("sum", "bytes"), ("longest", "longest_bytes")]
)
def test_bodies_of_similar_size_share_a_batch_if_the_model_pads(measure: str, found: str | None) -> None:
    """Without a cost, bodies of all sizes share one if it does not; the limit still counts rows.

    Whatever was learned about bytes, empty bodies are answered, alone in their batches and among others.
    """
    core, batches = of_bodies(measure)
    [stats] = core.stats(now=1e6)
    assert (stats.padding and stats.padding.measure) == found
    if measure == "longest":
        assert stats.padding is not None
        assert stats.padding.share < 0.1
        assert all(max(sizes) < 2 * min(sizes) for sizes in batches)
        assert max(map(len, batches)) == 6
    else:
        assert set(map(len, batches)) == {6}

    now = 1e6
    for number in range(10_000, 10_200):
        assert core.submit(number, api="a", now=now, size_bytes=0 if number % 20 < 10 else 4000) is None
        if number % 10 == 9:
            while batch := starts(poll_all(core, now)):
                now += 0.001
                core.batch_done(batch[0].number, status="worked", now=now)
    assert core.is_empty


def test_rows_beyond_the_limit_of_the_model_share_a_batch() -> None:
    """The model truncates at 100: once that is known, 200 and 1000 are of equal length."""
    on = Padded()
    random_ = random.Random(1)
    for _ in range(800):
        lengths = [random_.choice([10, 50, 100, 200, 1000]) for _ in range(4)]
        on.submit(*lengths)
        while batch := starts(poll_all(on.core, on.now)):
            [start] = batch
            longest = max(on.lengths[request] for request in start.requests)
            on.now += FIXED_S + TOKEN_S * len(start.requests) * min(longest, 100)
            on.core.batch_done(start.number, status="worked", now=on.now)
    [stats] = on.core.stats(now=on.now)
    assert stats.padding is not None
    assert 80 < stats.padding.length_limit < 130
    on.submit(10)
    first = on.start()
    queued = on.submit(200, 10, 1000)
    on.finish(first)
    assert on.run_all() == [(queued[0], queued[2]), (queued[1],)]


@pytest.mark.parametrize(("policy", "most"), [("none", 1), ("fixed:0:30", 3)])
def test_the_cost_of_a_policy_is_a_limit_for_similar_rows_too(policy: str, most: int) -> None:
    on, first = busy()
    on.core.set_api(ApiRules(name="a", policy=policy, goal_s=60.0, max_batch_rows=10_000))
    on.submit(*[10.0] * 12)
    on.finish(first)
    assert [len(requests) for requests in on.run_all()] == [most] * (12 // most)
