"""The core when rows have lengths: who shares a batch, and what is learned from it."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, starts
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.lengths import row_lengths
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients

FIXED_S, TOKEN_S = 0.010, 0.0001
"""A batch costs as much as 100 tokens besides its own."""


class Padded:
    """A core whose only worker pads each batch to its longest row."""

    def __init__(self, *, workers: int = 1, padding: float = 1.0, **limits: object) -> None:
        rules: dict[str, object] = {"policy": "fixed:0", "goal_s": 60.0, "max_batch_rows": 10_000, **limits}
        self.core = core_with(ApiRules(name="a", **rules), workers=workers)  # type: ignore[arg-type]
        self.now = 0.0
        self.submitted = 0
        self.padding = padding
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
        self.now += FIXED_S + TOKEN_S * size
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


def test_rows_of_one_request_are_padded_to_its_longest() -> None:
    """Six rows that cost 100, the largest of which costs 50."""
    on = Padded()
    on.core.submit(1, api="a", now=0.0, rows=100, count=6, longest=50)
    start = on.start()
    assert (start.rows, start.padded) == (100, 300)


def test_flows_take_turns_among_the_lengths_that_mix() -> None:
    """A request that does not fit in is passed over; its flow does not lose its share."""
    on, first = busy(fair=True)
    a = on.submit(10, 10, flow="a")
    b = on.submit(400, 10, flow="b")
    on.finish(first)
    assert on.run_all() == [(a[0], a[1], b[1]), (b[0],)]


def test_of_deadlines_that_clients_set_the_earliest_decides() -> None:
    on, first = busy()
    queued = on.submit(10, 11)
    on.core.submit(1000, api="a", now=on.now, rows=400, count=1, expires_at=on.now + 30)
    on.core.submit(1001, api="a", now=on.now, rows=390, count=1, expires_at=on.now + 40)
    on.finish(first)
    assert on.run_all() == [(1000, 1001), tuple(queued)]


def late_answers(*, workers: int, rate: float, seconds: float, **scenario: Any) -> tuple[float, float]:
    """Return the answers per second under overload with a goal of 300 ms, and the share that missed it."""
    random_ = random.Random(3)
    arrivals = [0.0]
    while arrivals[-1] < seconds:
        arrivals.append(arrivals[-1] + random_.expovariate(rate))
    run = simulate(Scenario(arrivals=arrivals, workers=workers, limit_rows=16_384, goal_s=0.3, **scenario))
    late = [one for one in run.answered if one.finish - one.arrival > 0.3]
    return len(run.answered) / seconds, len(late) / len(run.answered)


def padded_time(intercept_s: float) -> ServiceTime:
    return ServiceTime(intercept_s=intercept_s, slope_s=20e-6, padding=1.0, noise_cv=0.1)


def a_tenth_long(random_: random.Random) -> float:
    """Draw a length: a tenth of the rows are 32 times as long as the others."""
    return 512.0 if random_.random() < 0.1 else 16.0


def test_overload_does_not_collapse() -> None:
    """Nearly all answers keep the goal."""
    answers_per_s, late = late_answers(
        workers=1, rate=1600, seconds=5, service=padded_time(0.002), lengths=a_tenth_long
    )
    assert answers_per_s > 400
    assert late < 0.03


@pytest.mark.parametrize("padding", [0.0, 1.0])
def test_a_long_request_does_not_starve(padding: float) -> None:
    """Clients of short requests come back at once; the long one starts when it is the most urgent."""
    on = Padded(padding=padding)
    on.teach()
    on.submit(*[10.0] * 40)
    [long] = on.submit(400)
    for batches in range(4):  # noqa: B007
        start = on.start()
        if long in start.requests:
            break
        on.finish(start)
        on.submit(*[10.0] * len(start.requests))
    assert batches <= 1


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


def test_a_batch_is_predicted_with_its_padding() -> None:
    on = Padded()
    on.teach()
    on.submit(40, 60)
    start = on.start()
    assert start.predicted_s == pytest.approx(FIXED_S + TOKEN_S * 120, rel=0.01)


def test_a_request_alone_is_not_expected_to_be_padded() -> None:
    """Though batches have had much padding: one that can just be answered in time is not shed."""
    on = padded_threefold()
    on.submit(100)
    first = on.start()
    needed_s = FIXED_S + TOKEN_S * 600
    on.core.submit(5000, api="a", now=on.now, rows=600, count=1, expires_at=on.now + needed_s + 0.025)
    assert [one for one in poll_all(on.core, on.now) if isinstance(one, Shed)] == []
    on.finish(first)
    assert on.start().requests == (5000,)


def test_a_queue_is_full_with_the_usual_padding() -> None:
    """Requests of cost 100 count 300, so two fill a batch of 600; the policy would wait for more."""
    on = padded_threefold(max_batch_rows=600, policy="fixed:1000")
    for number in (1, 2, 3):
        assert poll_all(on.core, on.now) == []
        on.core.submit(number, api="a", now=on.now, rows=100, count=6, longest=50)
    assert on.start().requests == (1, 2)


def test_before_the_first_batch_lengths_are_kept_apart() -> None:
    on = Padded()
    short = on.submit(10, 10)
    long = on.submit(400)
    assert on.run_all() == [tuple(short), tuple(long)]


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("padding", "share"), [(1.0, 1.05), (0.5, 1.0), (0.0, 0.55)])
def test_the_first_batches_take_no_longer_than_their_requests_one_by_one(
    padding: float, share: float, seed: int
) -> None:
    """In all, with a full queue from the start. If they mixed all lengths, padded ones took twice as long."""
    on, random_ = Padded(padding=padding), random.Random(seed)
    draw = row_lengths("lognormal:64:1").draw
    on.submit(*[draw(random_) for _ in range(64)])
    alone_s = 0.0
    for _ in range(10):
        start = on.start()
        on.finish(start)
        alone_s += sum(FIXED_S + TOKEN_S * on.lengths[one] for one in start.requests)
        on.submit(*[draw(random_) for _ in start.requests])
    assert on.now < share * alone_s


@pytest.mark.parametrize("padding", [1.0, 0.5])
def test_a_cold_start_answers_as_many_as_one_by_one(padding: float) -> None:
    """In a closed loop whose batches would take three times as long if they mixed all lengths."""
    scenario = Scenario(
        service=replace(padded_time(0.004), padding=padding),
        arrivals=Clients(count=64),
        limit_rows=16_384,
        goal_s=1e3,
        requests=400,
        lengths=row_lengths("lognormal:64:1").draw,
    )
    cork, alone = (simulate(replace(scenario, policy=policy)).answered for policy in ("cork", "none"))
    assert cork[200].finish < alone[200].finish
    assert cork[350].finish < 0.9 * alone[350].finish


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


class Bodies:
    """A core whose worker takes time by the bytes of the longest body; its rows have no cost."""

    def __init__(self, policy: str) -> None:
        self.core, self.now, self.submitted = (
            core_with(ApiRules(name="a", policy="fixed:0", goal_s=60.0)),
            0.0,
            0,
        )
        for sizes in [(100,), (1000,), (4000,), (500, 600), (1000, 1300), (90, 110, 4000)] * 40:
            self.submit(*sizes)
            self.run_all()
        self.core.set_api(ApiRules(name="a", policy=policy, goal_s=60.0))

    def submit(self, *sizes: int) -> None:
        """Queue requests of one row with bodies of these sizes."""
        for size_bytes in sizes:
            self.submitted += 1
            self.core.submit(self.submitted, api="a", now=self.now, size_bytes=size_bytes)

    def run_all(self) -> list[int]:
        """Run what is queued; return the number of requests of each batch."""
        batches = []
        while batch := starts(poll_all(self.core, self.now)):
            for start in batch:
                batches.append(len(start.requests))
                longest = start.padded
                self.now += FIXED_S + TOKEN_S * longest / 10
                self.core.batch_done(start.number, status="worked", now=self.now)
        return batches


@pytest.mark.parametrize(("policy", "most"), [("none", 1), ("fixed:0:1", 1), ("fixed:0:3", 3)])
def test_the_rows_of_a_policy_are_a_limit_for_short_rows_too(policy: str, most: int) -> None:
    """Many short rows are as large as few of the usual length."""
    on = Bodies(policy)
    [stats] = on.core.stats(now=on.now)
    assert stats.padding is not None
    on.submit(*[100] * 12)
    assert on.run_all() == [most] * (12 // most)


@pytest.mark.parametrize(("policy", "most"), [("none", 1), ("fixed:0:30", 3)])
def test_the_cost_of_a_policy_is_a_limit_for_similar_rows_too(policy: str, most: int) -> None:
    on, first = busy()
    on.core.set_api(ApiRules(name="a", policy=policy, goal_s=60.0, max_batch_rows=10_000))
    on.submit(*[10.0] * 12)
    on.finish(first)
    assert [len(requests) for requests in on.run_all()] == [most] * (12 // most)
