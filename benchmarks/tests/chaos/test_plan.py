"""The plan of strikes depends on the seed only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos.faults import (
    DRAIN,
    FAULTS,
    HOST,
    PARTITION,
    POISON,
    RELOAD,
    SERVICES,
    STOP,
    plan_strikes,
    possible_faults,
)
from benchmarks.chaos.report import Settings
from benchmarks.chaos.run import row_ms
from benchmarks.chaos.trial import INJECTORS

ALL = tuple(FAULTS.values())


def test_the_plan_follows_from_the_seed() -> None:
    whole = plan_strikes(ALL, seconds=60.0, seed=7)
    part = plan_strikes((STOP, POISON), seconds=60.0, seed=7)

    assert whole == plan_strikes(ALL, seconds=60.0, seed=7)
    assert whole != plan_strikes(ALL, seconds=60.0, seed=8)
    assert part == [strike for strike in whole if strike.fault in (STOP, POISON)]
    assert len({strike.seed for strike in whole}) == len(whole)


def test_every_fault_that_returns_can_be_injected() -> None:
    assert set(INJECTORS) == set(FAULTS) - {DRAIN.name}


def test_faults_fit_where_the_workers_are() -> None:
    assert set(possible_faults(on_hosts=False).values()) == set(ALL) - {HOST, PARTITION}
    assert set(possible_faults(on_hosts=True).values()) == set(ALL) - {RELOAD, SERVICES, STOP}


@given(rate=st.floats(1.0, 2000.0), workers=st.integers(2, 16))
def test_the_overload_is_one(rate: float, workers: int) -> None:
    settings = Settings(seconds=60, seed=1, faults=[], rate=rate, workers=workers)

    batch_s = (5.0 + row_ms(settings) * 32) / 1000

    assert workers * 32 / batch_s == pytest.approx(3 * rate * 1.2)
