"""Cells of an experiment: what they may be, what they offer, and how many requests they are measured with."""

from __future__ import annotations

import dataclasses
import math

import pytest

from uncork_dispatcher.simulator.cells import MOST_REQUESTS, Cell, requests_to_measure

OPEN = Cell(intercept_ms=40, slope_ms=1, workers=4, load=0.5)
CLOSED = Cell(intercept_ms=40, slope_ms=1, workers=4, clients=16)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (Cell(intercept_ms=1, slope_ms=0.02, load=0.95), "1+0.02n W=1 poisson 0.95"),
        (dataclasses.replace(OPEN, arrivals="gamma:4", noise_cv=0.3), "40+1n noise 0.3 W=4 gamma:4 0.5"),
        (dataclasses.replace(OPEN, load=0.8424390), "40+1n W=4 poisson 0.842"),
        (CLOSED, "40+1n W=4 16 clients"),
        (dataclasses.replace(CLOSED, think_ms=5), "40+1n W=4 16 clients think 5"),
        (dataclasses.replace(OPEN, transport_ms=5), "40+1n W=4 poisson 0.5 transport 5"),
        (Cell(intercept_ms=1, slope_ms=1, clients=9, request_ms=0.1), "1+1n W=1 9 clients work 0.1"),
        (dataclasses.replace(OPEN, sources="pool"), "40+1n W=4 poisson 0.5 sources pool"),
    ],
)
def test_its_name_says_what_it_is(cell: Cell, name: str) -> None:
    assert str(cell) == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intercept_ms": -1}, "intercept_ms must be 0 or more, got -1"),
        ({"slope_ms": math.nan}, "slope_ms must be 0 or more, got nan"),
        ({"noise_cv": math.inf}, "noise_cv must be 0 or more, got inf"),
        ({"intercept_ms": 0, "slope_ms": 0}, "a batch must take some time"),
        ({"workers": 0}, "workers must be more than 0, got 0"),
        ({"limit_rows": 0}, "limit_rows must be more than 0, got 0"),
        ({"goal_ms": 0}, "goal_ms must be more than 0, got 0"),
        ({"goal_ms": math.inf}, "goal_ms must be more than 0, got inf"),
        ({"load": 0}, "load must be more than 0 and at most 5, got 0"),
        ({"load": 5.1}, r"load must be more than 0 and at most 5, got 5\.1"),
        ({"load": math.nan}, "load must be more than 0 and at most 5, got nan"),
        ({"load": None}, r"either load \(open loop\) or clients \(closed loop\)"),
        ({"clients": 4}, r"either load \(open loop\) or clients \(closed loop\)"),
        ({"load": None, "clients": 0}, "clients must be 1 or more, got 0"),
        ({"transport_ms": -1}, "transport_ms must be 0 or more, got -1"),
        ({"request_ms": -1}, "request_ms must be 0 or more, got -1"),
        ({"load": None, "clients": 4, "think_ms": -1}, "think_ms must be 0 or more, got -1"),
        ({"load": None, "clients": 4, "round_trip_ms": math.nan}, "round_trip_ms must be 0 or more, got nan"),
    ],
)
def test_a_cell_that_cannot_be_is_refused(changes: dict[str, float | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(OPEN, **changes)  # type: ignore[arg-type]


def test_the_load_is_a_share_of_full_batches_on_all_workers() -> None:
    """4 workers with 64 rows every 104 ms carry 2461 rows per second; half of that is offered."""
    assert OPEN.capacity == pytest.approx(4 * 64 / 0.104)
    assert OPEN.rate == pytest.approx(2 * 64 / 0.104)


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        # One client: 41 ms of work, 0.5 ms under way, 5 ms of thought.
        (dataclasses.replace(CLOSED, clients=1), 1 / 0.0415),
        (dataclasses.replace(CLOSED, clients=1, think_ms=5), 1 / 0.0465),
        # Four batches of 4, each 44 ms and a round trip; the workers are idle meanwhile.
        (CLOSED, 16 / 0.0445),
        # Full batches, and clients enough to fill the next one in the meantime.
        (dataclasses.replace(CLOSED, clients=1000), 4 * 64 / 0.104),
    ],
)
def test_clients_reach_at_best(cell: Cell, rate: float) -> None:
    """The throughput of equal shares of them on all workers, or that of full batches."""
    assert cell.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        # Batches of 17.8 rows are enough for 4 workers; half as many more and 2, 300 times on each.
        (OPEN, 34_400),
        # Batches of 3.9 rows; enough of them for a percentile.
        (Cell(intercept_ms=40, slope_ms=1, load=0.05), 2000),
        # More than they carry: full batches, and as many again that are shed.
        (Cell(intercept_ms=40, slope_ms=1, load=1.0), 300 * 64),
        (Cell(intercept_ms=40, slope_ms=1, load=2.0), 300 * 64 * 2),
        (Cell(intercept_ms=40, slope_ms=1, load=4.0, workers=8), MOST_REQUESTS),
        (Cell(intercept_ms=40, slope_ms=1, load=0.9, limit_rows=8), 300 * 8),
        # 4 workers that share 16 clients unevenly: 10 in a batch.
        (CLOSED, 300 * 4 * 10),
        (dataclasses.replace(CLOSED, clients=256), 300 * 4 * 64),
        (dataclasses.replace(CLOSED, clients=2, workers=8), 2000),
        # 82 cycles of 24.6 requests.
        (Cell(intercept_ms=40, slope_ms=1, load=0.05, arrivals="onoff"), 2018),
    ],
)
def test_enough_requests(cell: Cell, count: int) -> None:
    """For 300 batches on each worker, and at least 2000."""
    assert requests_to_measure(cell) == count
