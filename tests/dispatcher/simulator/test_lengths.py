"""Lengths of rows: their distributions, and what the simulator makes of them."""

from __future__ import annotations

import dataclasses
import random
import statistics

import pytest

from uncork_dispatcher.rules import SettingError
from uncork_dispatcher.simulator.cells import Cell, requests_to_measure
from uncork_dispatcher.simulator.lengths import RowLengths, most_in_order, row_lengths
from uncork_dispatcher.simulator.measure import measure
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients

PADDED = ServiceTime(intercept_s=0.004, slope_s=20e-6, padding=1.0)
MIXED = row_lengths("bimodal:16:512:0.1")
CELL = Cell(
    intercept_ms=4, slope_ms=0.02, limit_rows=16_384, goal_ms=1e6, clients=32, lengths="lognormal:64:1"
)


def drawn(text: str, count: int = 40_000) -> list[float]:
    random_ = random.Random(1)
    lengths = row_lengths(text)
    return [lengths.draw(random_) for _ in range(count)]


def run(policy: str = "fixed:0", **changes: object) -> Run:
    """A closed loop of 16 clients, on a model that pads."""
    scenario = Scenario(
        service=PADDED,
        arrivals=Clients(count=16),
        limit_rows=16_384,
        policy=policy,
        requests=600,
        lengths=MIXED.draw,
    )
    return simulate(dataclasses.replace(scenario, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_log_normal_lengths_have_their_mean_and_variation(cv: float) -> None:
    lengths = drawn(f"lognormal:64:{cv}")

    assert row_lengths(f"lognormal:64:{cv}").mean == 64
    assert statistics.fmean(lengths) == pytest.approx(64, rel=0.03)
    assert statistics.stdev(lengths) / statistics.fmean(lengths) == pytest.approx(cv, rel=0.1)
    assert statistics.median(lengths) == pytest.approx(64 / (1 + cv**2) ** 0.5, rel=0.03)


def test_a_share_of_bimodal_lengths_is_long() -> None:
    lengths = drawn("bimodal:16:512:0.1")
    short, long = ([one for one in lengths if (one > 100) is is_long] for is_long in (False, True))

    assert MIXED.mean == pytest.approx(0.9 * 16 + 0.1 * 512)
    assert len(long) / len(lengths) == pytest.approx(0.1, rel=0.05)
    for part, mean in ((short, 16), (long, 512)):
        assert statistics.fmean(part) == pytest.approx(mean, rel=0.02)
        assert statistics.stdev(part) == pytest.approx(0.2 * mean, rel=0.05)


def test_constant_lengths_are_equal() -> None:
    assert set(drawn("constant:7.5", 100)) == {7.5}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "normal:64:1",
        "lognormal",
        "lognormal:64",
        "lognormal:64:1:1",
        "lognormal:0.9:1",
        "lognormal:1.1e9:1",
        "lognormal:nan:1",
        "lognormal:inf:1",
        "lognormal:64:-1",
        "lognormal:64:5.1",
        "lognormal:64:x",
        "bimodal:16:512",
        "bimodal:0:512:0.1",
        "bimodal:16:512:0",
        "bimodal:16:512:1",
        "constant",
        "constant:-3",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="lengths must be one of lognormal:MEAN:CV, ") as error:
        row_lengths(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("padding", "lengths", "limit", "carries"),
    [
        (0.0, MIXED, 6560, 100 / (0.004 + 20e-6 * 6560)),
        (1.0, row_lengths("constant:64"), 6400, 100 / (0.004 + 20e-6 * 6400)),
        (1.0, MIXED, 1, 1 / (0.004 + 20e-6 * MIXED.mean)),
    ],
    ids=["no padding", "equal lengths", "at least one row"],
)
def test_full_batches_carry_most(padding: float, lengths: RowLengths, limit: int, carries: float) -> None:
    service = dataclasses.replace(PADDED, padding=padding)

    assert most_in_order(service, lengths, limit=limit) == pytest.approx(
        carries, rel=1e-6 if limit > 1 else 0.05
    )


def test_with_padding_large_batches_may_carry_less() -> None:
    """Two rows of 10 or 100, equally likely: the longer is of 10 with a probability of a quarter."""
    lengths = RowLengths(((0.5, 10.0, 0.0), (0.5, 100.0, 0.0)))
    alone, two = 1 / (0.004 + 20e-6 * 55), 2 / (0.004 + 20e-6 * 2 * 77.5)
    small = dataclasses.replace(PADDED, intercept_s=1e-9)

    assert most_in_order(PADDED, lengths, limit=110) == pytest.approx(max(alone, two), rel=0.03)
    assert most_in_order(small, lengths, limit=16_384) == pytest.approx(1 / (20e-6 * 55), rel=0.03)


def test_the_load_of_a_cell_is_a_share_of_it() -> None:
    cell = dataclasses.replace(CELL, clients=None, load=0.5, workers=3)
    one = most_in_order(cell.service, row_lengths("lognormal:64:1"), limit=16_384)

    assert cell.capacity == pytest.approx(3 * one)
    assert cell.rate == pytest.approx(1.5 * one)
    assert 2000 <= requests_to_measure(cell) < 300 * 3 * 16_384 / 64


def test_clients_and_counts_are_in_rows_of_average_length() -> None:
    """Without padding, a cell of equal lengths is the cell of rows that cost as much."""
    rows = Cell(intercept_ms=5, slope_ms=1.28, limit_rows=20, clients=200)
    lengths = dataclasses.replace(rows, slope_ms=0.02, limit_rows=1280, lengths="constant:64")

    assert lengths.rate == pytest.approx(rows.rate)
    assert requests_to_measure(lengths) == requests_to_measure(rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": 1.1}, r"padding must be a share from 0 to 1, got 1\.1"),
        ({"padding": float("nan")}, "padding must be a share from 0 to 1, got nan"),
        ({"lengths": "lognormal:64"}, "lengths must be one of lognormal:MEAN:CV"),
    ],
)
def test_a_cell_with_wrong_lengths_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(CELL, **changes)  # type: ignore[arg-type]


def test_a_batch_takes_as_long_as_its_padding_says() -> None:
    """Also where the core knows only costs."""
    for known in ("costs", "totals", "bytes", "nothing"):
        batches = run(known=known).batches

        assert all(one.seconds == pytest.approx(PADDED.mean(one.padded)) for one in batches)
        assert any(one.padded > 1.2 * one.rows for one in batches)
        assert all(one.rows <= one.padded <= one.requests * 1500 for one in batches)


def test_each_row_is_prepared_whatever_its_length() -> None:
    """Rows of length 64 that cost as much as rows without lengths are the same scenario."""
    rows = ServiceTime(intercept_s=0.004, slope_s=0.00128, prepare_s=0.003)
    by_length = dataclasses.replace(rows, slope_s=20e-6)
    plain = run(service=rows, lengths=None, limit_rows=8)
    long = run(service=by_length, lengths=row_lengths("constant:64").draw, limit_rows=8 * 64)

    assert [one.seconds for one in long.batches] == pytest.approx([one.seconds for one in plain.batches])
    capacity = most_in_order(by_length, row_lengths("constant:64"), limit=8 * 64)
    assert capacity == pytest.approx(rows.capacity(workers=1, limit_rows=8))


def test_only_known_lengths_stay_apart() -> None:
    known, unknown = run("cork").batches, run("cork", known="totals").batches

    def padding(batches: list[object]) -> float:
        late = batches[len(batches) // 2 :]
        return sum(one.padded for one in late) / sum(one.rows for one in late)  # type: ignore[attr-defined]

    assert padding([*known]) < 1.3 < 3 < padding([*unknown])


def test_the_p99_of_the_longest_tenth() -> None:
    """One at a time, without a queue: latency is the batch time of its length."""
    cell = dataclasses.replace(CELL, clients=1, lengths="bimodal:16:512:0.1")
    seen = measure(cell, "none", 1, requests=1500)

    assert seen.p50_ms == pytest.approx(4 + 0.02 * 16, rel=0.02)
    # The 90th and the 99th percentile of lengths around 512 that vary by a fifth.
    assert seen.p99_ms == pytest.approx(4 + 0.02 * 512 * 1.26, rel=0.03)
    assert seen.long_p99_ms == pytest.approx(4 + 0.02 * 512 * 1.56, rel=0.05)
