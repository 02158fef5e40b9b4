"""Comparison of policies: rounds, ratios and output. Nothing is measured here."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.expected import check_texts, printed
from tests.loadtests.charts import charts
from uncork.cli.compare.tables import as_json, draw, tables
from uncork_loadtests.compare import (
    METRICS,
    WARM_UP,
    Comparison,
    Rounds,
    Turn,
    median_interval,
    of_round,
    relate,
    take_turns,
)
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://service/", payload=Payload(bodies=(b"[1]",)), rate=10.0, seconds=2.0, goal_s=0.1)
GOOD = Turn(
    mean_ms=10.0,
    p50_ms=8.0,
    p99_ms=20.0,
    answered_per_s=100.0,
    in_goal=1.0,
    batch_rows=4.0,
    gateway_cpu_us=150.0,
    workers_cpu_us=50.0,
    failure="",
    wrong=0,
    first_wrong="",
    void="",
)


class Script:
    """Returns scripted turns, and records their order."""

    def __init__(self, **void: int) -> None:
        self.asked: list[tuple[int, str]] = []
        self._void = void
        """Number of void first turns by policy."""

    def __call__(self, policy: str, number: int) -> Turn:
        self.asked.append((number, policy))
        if number != WARM_UP:
            self._void[policy] = self._void.get(policy, 0) - 1
        return replace(GOOD, void="late" if self._void.get(policy, 0) >= 0 else "")


def comparison(*whole: dict[str, Turn]) -> Comparison:
    policies = list(whole[0]) if whole else ["cork", "none"]
    return Comparison(
        target="m:S", plan=PLAN, rounds=Rounds(whole=whole), results=relate(policies, list(whole))
    )


def test_policies_of_a_round_get_the_same_bodies_in_the_same_order() -> None:
    """A closed loop never sends a file in its own order: a faster policy would see other parts of it."""
    bodies = tuple(b"%d" % number for number in range(50))
    closed = replace(PLAN, rate=None, clients=2, payload=Payload(bodies=bodies))
    first, second = of_round(closed, 0), of_round(closed, 1)

    assert first.payload == of_round(closed, 0).payload
    assert sorted(first.payload.bodies) == sorted(second.payload.bodies) == sorted(bodies)
    assert len({bodies, first.payload.bodies, second.payload.bodies}) == 3
    opened = of_round(replace(PLAN, payload=Payload(bodies=bodies)), 1)
    assert (opened.payload.bodies, opened.seed) == (bodies, PLAN.seed + 1)


def test_every_round_has_all_policies_and_begins_with_another() -> None:
    """After loads that warm them up and do not count."""
    script = Script()
    rounds = take_turns(["a", "b", "c"], rounds=2, measure=script)

    assert script.asked[:3] == [(WARM_UP, "a"), (WARM_UP, "b"), (WARM_UP, "c")]
    assert script.asked[3:] == [(0, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (1, "a")]
    assert [list(one) for one in rounds.whole] == [["a", "b", "c"]] * 2
    assert (rounds.left_out, rounds.interrupted) == ([], False)


@pytest.mark.parametrize(("at", "whole"), [(WARM_UP, 0), (1, 1)])
def test_ctrl_c_leaves_the_rounds_that_are_complete(at: int, whole: int) -> None:
    script = Script()

    def measure(policy: str, number: int) -> Turn:
        if (number, policy) == (at, "a"):
            raise KeyboardInterrupt
        return script(policy, number)

    rounds = take_turns(["a", "b"], rounds=9, measure=measure)

    assert (len(rounds.whole), rounds.interrupted) == (whole, True)


def test_a_void_turn_is_repeated_twice_and_its_round_left_out_if_it_stays_void() -> None:
    script = Script(a=3, b=2)
    rounds = take_turns(["a", "b"], rounds=2, measure=script)

    assert script.asked[2:] == [(0, "a")] * 3 + [(1, "b")] * 3 + [(1, "a")]
    assert rounds.whole == [{"b": GOOD, "a": GOOD}]
    assert [(one.number, one.policy, one.reason) for one in rounds.left_out] == [(0, "a", "late")]


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        # The mean of the logarithms, and 12.706 or 4.303 times their deviation by the root of their number.
        ([0.5, 2.0], (1.25, 2**-12.706, 2**12.706)),
        ([0.5, 1.0, 2.0], (1.0, 2 ** (-4.303 / 3**0.5), 2 ** (4.303 / 3**0.5))),
        ([0.0, 1.0], (0.5, 0.0, math.inf)),
        ([0.5, 0.75, 1.0, 1.5, 2.0], (1.0, 0.5, 2.0)),
    ],
)
def test_few_rounds_have_a_wide_interval(values: list[float], interval: tuple[float, ...]) -> None:
    found = median_interval(values)

    assert astuple(found) == pytest.approx(interval, rel=1e-3)


@at_most(10)
@given(st.lists(st.tuples(st.floats(1, 1e3), st.floats(0.1, 10)), min_size=1, max_size=6))
@example([(1.0, 2.8772182518592255)] * 2)
def test_ratios_are_taken_within_rounds(rounds: list[tuple[float, float]]) -> None:
    whole = [
        {"a": replace(GOOD, mean_ms=base), "b": replace(GOOD, mean_ms=base * factor)}
        for base, factor in rounds
    ]
    first, second = relate(["a", "b"], whole)
    found = second.ratios["mean_ms"]
    factors = [factor for _, factor in rounds]

    assert found is not None
    assert astuple(found) == pytest.approx(astuple(median_interval(factors)))
    assert found.low <= found.median <= found.high
    known = [name for name in METRICS if getattr(GOOD, name) is not None]
    assert {first.ratios[name] for name in known} == {median_interval([1.0])}


def test_what_is_missing_in_a_round_is_not_summed_up() -> None:
    missing, nothing = replace(GOOD, p99_ms=None), replace(GOOD, in_goal=0.0)
    _, found = relate(["a", "b"], [{"a": GOOD, "b": GOOD}, {"a": nothing, "b": missing}])

    assert (found.medians["p99_ms"], found.ratios["p99_ms"]) == (None, None)
    assert (found.medians["in_goal"], found.ratios["in_goal"]) == (1.0, None)
    assert found.medians["p50_ms"] == 8.0


@pytest.mark.parametrize(
    ("turn", "fault"),
    [
        (replace(GOOD, wrong=2, first_wrong="sent x"), "b: 2 wrong responses; first: sent x"),
        (replace(GOOD, failure="no response was successful"), "b: no response was successful"),
    ],
)
def test_faults_name_the_policy(turn: Turn, fault: str) -> None:
    assert comparison({"a": GOOD, "b": GOOD}, {"a": GOOD, "b": turn}).faults == [fault]
    assert comparison({"a": GOOD, "b": GOOD}).faults == []
    assert comparison().faults == ["no valid round remains"]


ROUNDS = (
    {"cork": GOOD, "none": replace(GOOD, p50_ms=16.0, p99_ms=None)},
    {"cork": GOOD, "none": replace(GOOD, p50_ms=24.0, p99_ms=None)},
)


def test_what_is_printed() -> None:
    """``compare.txt`` has it, with lengths where some policy knows them."""
    padded, alone = replace(GOOD, long_mean_ms=40.0, padding_share=0.25), replace(GOOD, long_mean_ms=80.0)
    both = (comparison(*ROUNDS), comparison({"cork": padded, "none": alone}))
    check_texts(Path(__file__).with_name("compare.txt"), "\n".join(printed(*tables(each)) for each in both))


def test_json_has_every_round() -> None:
    figures = json.loads(as_json(comparison(*ROUNDS)))

    assert figures["base"] == "cork"
    assert figures["warm_up_s"] == figures["plan"]["seconds"] == 2
    assert figures["rounds"]["whole"][1]["none"]["p50_ms"] == 24
    assert figures["results"][1]["ratios"]["p50_ms"] == pytest.approx(
        {"median": 2.5, "low": 0.1863, "high": 32.2}, rel=1e-3
    )
    assert figures["results"][1]["medians"]["p99_ms"] is None
    assert figures["faults"] == []


def test_the_picture_has_policies_and_ratios(tmp_path: Path) -> None:
    draw(comparison(*ROUNDS), tmp_path / "p.html")
    p50, p99, *_ = charts(tmp_path / "p.html")

    assert p50.layout["yaxis"]["ticktext"] == ["cork", "none<br>2.500 (0.186 .. 32.195)"]
    assert [trace["x"] for trace in p50.traces] == [[8, 8], [8], [16, 24], [20]]
    assert "none<br>too few responses" in p99.layout["yaxis"]["ticktext"]
