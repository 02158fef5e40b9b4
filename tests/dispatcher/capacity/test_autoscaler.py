"""When workers are started and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.capacity.arrival_history import LOOK_S
from uncork_dispatcher.capacity.autoscaler import ApiDemand, Autoscaler, Decision, ScalingReason
from uncork_dispatcher.learning.estimator import Estimate

# Full batches of 50 rows take 0.5 s: a worker carries 100 rows/s, and 98 % of that with 98 % full batches.
DEMAND = ApiDemand(
    arrived_rows=0.0,
    estimate=Estimate(intercept_s=0.0, slope_s=0.01, spread=0.1, earned_rows=100.0),
    goal_s=10.0,
    limit_rows=50,
    smallest_rows=1.0,
)


class Traffic:
    """An autoscaler, the workers that it gets, and the arrivals of one API."""

    def __init__(
        self, least: int = 1, most: int = 20, *, demand: ApiDemand = DEMAND, target: int | None = None
    ):
        self.scaler = Autoscaler(least, most, target=target)
        self.demand = demand
        self.arrived = 0.0
        self.now = 100.0
        self.starting = 0
        self.decision = self.look()

    def look(self, **others: ApiDemand) -> Decision:
        demands = {"predict": replace(self.demand, arrived_rows=self.arrived), **others}
        before = self.decision.target if hasattr(self, "decision") else 10**6
        self.decision = self.scaler.look(
            demands, running=before - self.starting, starting=self.starting, now=self.now
        )
        return self.decision

    def run(self, rate: float, looks: int = 1, **others: ApiDemand) -> list[Decision]:
        """Send so many rows per second until so many looks are done."""
        found = []
        for _ in range(looks):
            self.now += LOOK_S
            self.arrived += rate * LOOK_S
            found.append(self.look(**others))
        return found


def targets(decisions: list[Decision]) -> list[int]:
    return [decision.target for decision in decisions]


def states(decisions: list[Decision]) -> list[str]:
    return [decision.reason.state for decision in decisions]


@pytest.mark.parametrize(("least", "most"), [(0, 3), (3, 2), (-1, -1)])
def test_bounds_must_be_in_order(least: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"got {least} and {most}"):
        Autoscaler(least, most)


@pytest.mark.parametrize(("most", "target", "after"), [(20, 7, "enough"), (4, 4, "at_most")])
def test_up_to_the_whole_number_after_two_looks(most: int, target: int, after: str) -> None:
    """500 rows/s with 20 % more are 600: 6 workers at least, 7 with the reserve of full batches."""
    found = Traffic(1, most).run(500, looks=3)

    assert targets(found) == [1, target, target]
    assert states(found) == ["confirming", "up", after]
    assert [decision.wanted for decision in found] == [7, 7, 7]
    assert found[1].reason == ScalingReason("up", "predict", "throughput")


def test_not_up_after_a_peak_that_one_look_sees() -> None:
    """A peak stays in the highest average of the last minute, so a later look confirms it, unless it was
    the estimate that was off for a moment."""
    traffic = Traffic()
    traffic.run(100, looks=4)
    slower = traffic.demand.estimate.slowed(5)
    traffic.demand = replace(traffic.demand, estimate=slower)
    assert states(traffic.run(100)) == ["confirming"]

    traffic.demand = DEMAND
    assert set(targets(traffic.run(100, looks=10))) == {2}


def test_down_by_one_when_a_peak_is_five_minutes_old_and_thirty_seconds_have_passed() -> None:
    traffic = Traffic()
    traffic.run(500, looks=4)
    found = traffic.run(100, looks=90)
    last = states(found).index("waiting")

    assert states(found)[:last][-1] == "recent_peak"
    assert last * LOOK_S == pytest.approx(300, abs=LOOK_S)
    assert states(found)[last : last + 14] == [*["waiting"] * 6, "down", *["waiting"] * 5, "down", "waiting"]
    assert targets(found)[last + 5 : last + 14] == [7, 6, 6, 6, 6, 6, 6, 5, 5]
    assert [decision.reason.wait_s for decision in found[last : last + 8]] == [30, 25, 20, 15, 10, 5, 30, 25]


def test_no_worker_is_stopped_while_one_starts() -> None:
    traffic = Traffic(target=9)
    traffic.starting = 1  # one fewer runs, so it also counts as starting if nobody says so
    assert states(traffic.run(100, looks=20)) == ["starting"] * 20

    traffic.starting = 0
    assert states(traffic.run(100, looks=7)) == [*["waiting"] * 6, "down"]


def test_a_look_that_wants_them_all_starts_the_thirty_seconds_again() -> None:
    traffic = Traffic(target=5)
    assert states(traffic.run(100, looks=5)) == ["waiting"] * 5
    traffic.demand = replace(DEMAND, estimate=DEMAND.estimate.slowed(5))
    traffic.run(100)
    traffic.demand = DEMAND
    assert states(traffic.run(100, looks=7)) == [*["waiting"] * 6, "down"]


def test_an_unknown_estimate_keeps_the_number() -> None:
    unknown = replace(DEMAND, estimate=Estimate())
    found = Traffic(1, 9, target=5, demand=unknown).run(100, looks=30)

    assert set(found[1:]) == {Decision(5, 5, ScalingReason("unknown", unknown=("predict",)))}


def test_what_is_known_may_need_more_beside_what_is_not() -> None:
    traffic = Traffic()
    new = replace(DEMAND, estimate=Estimate())
    looks = [traffic.run(500, new=replace(new, arrived_rows=5.0 * number))[0] for number in range(4)]

    assert targets(looks) == [1, 7, 7, 7]
    assert states(looks) == ["confirming", "up", "unknown", "unknown"]
    assert looks[3].reason.unknown == ("new",)


@pytest.mark.parametrize(
    ("concurrency", "rate", "wanted", "api"),
    [(1, 500, 19, "own"), (8, 500, 7, "predict"), (8, 50, 2, "own"), (2, 50, 7, "own")],
)
def test_an_api_with_slots_of_its_own_needs_no_time_of_the_others(
    concurrency: int, rate: float, wanted: int, api: str
) -> None:
    """It needs 13 slots, on as many workers as have them. The other API needs 7 workers, or one."""
    traffic, own = Traffic(), replace(DEMAND, concurrency=concurrency)
    looks = [
        traffic.run(rate, own=replace(own, arrived_rows=1000 * LOOK_S * number))[0] for number in range(3)
    ]
    assert (looks[-1].wanted, looks[-1].reason.api) == (wanted, api)


def test_the_spread_of_the_last_minute_counts() -> None:
    traffic = Traffic(demand=replace(DEMAND, goal_s=0.3, estimate=Estimate(0.05, 0.002, 0.1, 100.0)))
    (steady,) = {decision.wanted for decision in traffic.run(1000, looks=13)[1:]}
    traffic.demand = replace(traffic.demand, estimate=traffic.demand.estimate._replace(spread=0.4))
    once, *more = traffic.run(1000, looks=12)

    assert steady <= once.wanted < more[-1].wanted


def test_an_api_that_is_gone_is_forgotten() -> None:
    traffic = Traffic()
    traffic.run(500, looks=3)
    scaler = traffic.scaler
    found = scaler.look({}, running=7, starting=0, now=traffic.now + 5)
    assert found == Decision(1, 7, ScalingReason("waiting", wait_s=30.0))
    assert scaler.look({"predict": DEMAND}, running=7, starting=0, now=traffic.now + 10).wanted == 1


def test_arrivals_in_another_unit_are_forgotten() -> None:
    """500 bytes/s are not 500 rows/s. The history begins anew, and the first one before the first look."""
    traffic = Traffic(demand=replace(DEMAND, unit="bytes"))
    traffic.run(500, looks=3)
    traffic.demand = replace(DEMAND, unit="rows")
    assert {decision.wanted for decision in traffic.run(100, looks=4)} == {1, 2}

    early = Autoscaler(1, 20)
    early.count({"predict": 0.0}, now=100.0)
    demand = replace(DEMAND, arrived_rows=500 * LOOK_S, unit="rows")
    assert early.look({"predict": demand}, running=1, starting=0, now=100.0 + LOOK_S).wanted == 7


def drive(scaler: Autoscaler, steps: list[tuple[float, int, float]]) -> Iterator[tuple[Decision, int]]:
    """Yield decisions and how many workers start, for (rows, starting, slower) of each look."""
    total = 0.0
    for number, (rows, starting, slower) in enumerate(steps):
        total += rows
        demand = replace(DEMAND, arrived_rows=total, estimate=DEMAND.estimate.slowed(slower))
        now = number * LOOK_S
        yield scaler.look({"predict": demand}, running=100, starting=starting, now=now), starting


STEPS = st.lists(
    st.tuples(st.floats(0, 50_000), st.sampled_from([0, 0, 0, 1]), st.floats(0.2, 5)),
    min_size=1,
    max_size=200,
)


@given(st.integers(1, 20), st.integers(0, 20), STEPS)
def test_rules(least: int, more: int, steps: list[tuple[float, int, float]]) -> None:
    """Always within the bounds; up only if two looks in a row want more; down by one, rested and at most
    every 30 s."""
    most = least + more
    before, wanted_before = least, 0
    last_down = -1e9
    for number, (decision, starting) in enumerate(drive(Autoscaler(least, most), steps)):
        target, wanted = decision.target, min(max(decision.wanted, least), most)
        assert least <= target <= most
        if target > before:
            assert target == wanted
            assert wanted_before > before
        if target < before:
            assert target == before - 1
            assert not starting
            assert number * LOOK_S - last_down >= 30
            last_down = number * LOOK_S
        before, wanted_before = target, wanted


@pytest.mark.parametrize(
    ("least", "most", "target"), [(1, 20, 5), (2, 9, 5), (7, 9, 7), (1, 3, 3), (4, 4, 4)]
)
def test_the_target_moves_no_further_than_other_bounds_require(least: int, most: int, target: int) -> None:
    scaler = Autoscaler(1, 20, target=5)
    assert scaler.change_bounds(least, most) == target
    assert scaler.look({}, running=target, starting=0, now=0.0).target == target


def test_the_history_outlives_a_change_of_bounds() -> None:
    """Traffic that needs more than the old bounds allow gets it when two looks agree."""
    on = Traffic(1, 2)
    on.run(1000, looks=3)
    assert on.decision.target == 2
    on.scaler.change_bounds(1, 20)
    assert targets(on.run(1000, looks=2))[-1] > 2
