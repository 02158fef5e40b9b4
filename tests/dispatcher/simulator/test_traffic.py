"""When simulated requests arrive."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.simulator.traffic import Clients, open_loop, open_loop_for, recorded_rate

KINDS = ["poisson", "gamma:0.5", "gamma:2", "onoff", "ramp", "step", "spike"]


def arrive(kind: str, *, rate: float = 1000.0, count: int = 40_000, seed: int = 1) -> list[float]:
    return open_loop(kind, rate=rate, count=count, random_=random.Random(seed))


def gaps_of(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A recording of 4 requests in 10 seconds, with more columns than are needed."""
    path = tmp_path / "trace.csv"
    path.write_text("100.0,GET\n101.0,GET\n\n101.0,POST\n110.0,GET\n")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [200.0, 5000.0])
def test_the_rate_is_the_average_over_time(kind: str, rate: float) -> None:
    """For every kind: so many requests take so long. On/off traffic needs the most of them to show it."""
    times = arrive(kind, rate=rate)

    assert len(times) == 40_000
    assert times == sorted(times)
    assert times[0] >= 0
    assert len(times) / times[-1] == pytest.approx(rate, rel=0.1 if kind == "onoff" else 0.03)


@pytest.mark.parametrize(
    ("kind", "cv"), [("poisson", 1.0), ("gamma:0.5", 0.5), ("gamma:1", 1.0), ("gamma:2", 2.0)]
)
def test_gaps_vary_as_much_as_they_are_told(kind: str, cv: float) -> None:
    """Their coefficient of variation; that of a Poisson stream is 1."""
    gaps = gaps_of(arrive(kind))

    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("step", {20: 1 / 6}),
        ("ramp", {10: 1 / 16, 20: 1 / 4, 30: 9 / 16}),
        ("spike", {18: 18 / 56, 22: 38 / 56}),
    ],
)
def test_the_shape_of_the_rate(kind: str, shares: dict[int, float]) -> None:
    """Fivefold from the middle on; twice the average in the end; fivefold for a tenth of the time."""
    times = arrive(kind)

    for seconds, share in shares.items():
        assert sum(time < seconds for time in times) == pytest.approx(40_000 * share, rel=0.05)


@pytest.mark.parametrize("kind", [*KINDS, "constant"])
def test_arrivals_of_a_time_are_those_before_its_end(kind: str) -> None:
    times = open_loop_for(kind, rate=1000.0, seconds=40.0, random_=random.Random(1))

    assert times == sorted(times)
    assert times[-1] < 40
    assert len(times) == pytest.approx(40_000, rel=0.1 if kind == "onoff" else 0.03)


def test_a_trace_without_a_rate_comes_as_it_was_recorded(trace: Path) -> None:
    times = open_loop_for(f"replay:{trace}", rate=None, seconds=14.0, random_=random.Random(1))

    assert recorded_rate(trace) == pytest.approx(0.3)
    assert times == pytest.approx([0, 1, 1, 10, 10 + 10 / 3])


def test_other_arrivals_need_a_rate() -> None:
    with pytest.raises(ValueError, match="poisson arrivals require a rate"):
        open_loop_for("poisson", rate=None, seconds=1.0, random_=random.Random(1))


def test_a_trace_is_stretched_and_repeated(trace: Path) -> None:
    """3 gaps in 10 seconds become a request per second; then comes a mean gap, and it all begins anew."""
    times = arrive(f"replay:{trace}", rate=1.0, count=9)

    assert times == pytest.approx([0, 0.3, 0.3, 3, 4, 4.3, 4.3, 7, 8])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seconds\n1.0\n2.0\n", "expected one time in seconds per line.*'seconds'"),
        ("0.0\n1.0\ninf\n", "expected finite times in seconds, one per line"),
        ("0.0\nnan\n1.0\n", "expected finite times in seconds, one per line"),
        ("", "at least two times"),
        ("1.0\n", "at least two times"),
        ("1.0\n1.0\n", "at least two times, in ascending order"),
        ("2.0\n1.0\n", "in ascending order"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)

    with pytest.raises(ValueError, match=rf"bad\.csv: .*{message}"):
        arrive(f"replay:{path}")


@pytest.mark.parametrize(
    "kind", ["", "poison", "gamma", "gamma:", "gamma:-1", "gamma:x", "onoff:2", "replay"]
)
def test_there_are_no_other_kinds(kind: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown arrivals .*poisson, gamma:CV, constant, onoff, ramp, step, spike, replay:FILE",
    ):
        arrive(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_the_rate_must_be_positive(kind: str, rate: float) -> None:
    with pytest.raises(ValueError, match="rate must be positive"):
        arrive(kind, rate=rate)


def test_gaps_that_do_not_vary_are_not_gamma() -> None:
    """A coefficient of variation of 0 has no such distribution."""
    with pytest.raises(ValueError, match="coefficient of variation of gamma arrivals must be positive"):
        arrive("gamma:0")


@given(st.floats(0, 1), st.floats(0, 10), st.floats(0, 1), st.integers(0, 1000))
def test_a_pause_is_a_round_trip_and_a_think_time(
    round_trip_s: float, think_s: float, jitter: float, seed: int
) -> None:
    """Both jittered, and never negative."""
    clients = Clients(count=1, round_trip_s=round_trip_s, think_s=think_s, jitter=jitter)
    pause = clients.pause(random.Random(seed))

    mean = round_trip_s + think_s
    assert pause >= 0
    assert pause == pytest.approx(mean, abs=jitter * mean + 1e-12)
