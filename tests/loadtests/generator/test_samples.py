"""Summaries of samples."""

import math
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.expected import check_texts
from uncork_loadtests.generator.samples import (
    LOST,
    PENDING,
    SAMPLE,
    UNANSWERED,
    Samples,
    batch_rows,
    enough,
    has_long_body,
    long_from,
    spread,
    summarise,
    void_reason,
)

GOOD: dict[str, Any] = {
    "scheduled_s": 1.0,
    "fired_s": 1.0,
    "sent_s": 1.0,
    "done_s": 1.01,
    "status": 200,
    "batch_rows": 4,
    "queued_ms": 2.0,
    "batch_ms": 5.0,
    "wrong": False,
    "first_s": 1.01,
    "chunks": 0,
    "body_bytes": 40,
}
NO_ANSWER = {
    "done_s": math.nan,
    "first_s": math.nan,
    "batch_rows": 0,
    "queued_ms": math.nan,
    "batch_ms": math.nan,
}


def samples(*changes: dict[str, Any]) -> Samples:
    return np.array([tuple((GOOD | changed).values()) for changed in changes], dtype=SAMPLE)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([40] * 9, None),
        ([40] * 9 + [79], None),
        ([40] * 9 + [80], 80),
        ([10] * 95 + [50] * 5, 50),
        ([10] * 50 + [50] * 50, 50),
        (list(range(1, 101)), 91),
        ([10] * 5 + [12] * 90 + [100] * 5, 100),
        ([10] * 88 + [50] * 11 + [100], 50),
    ],
)
def test_the_longest_tenth_of_the_bodies_is_long(sizes: list[int], expected: int | None) -> None:
    assert long_from(np.array(sizes)) == expected


EARLY = {"scheduled_s": -0.1, "fired_s": -0.1, "sent_s": -0.1}
OF_LENGTHS: list[dict[str, Any]] = [
    NO_ANSWER | {"body_bytes": 100, "status": LOST},
    NO_ANSWER | {"body_bytes": 0, "status": UNANSWERED},
    *[{"body_bytes": 10}] * 30,
    {"body_bytes": 100, "done_s": 1.05},
    {"body_bytes": 120, "done_s": 1.15},
    {"body_bytes": 100, "status": 503},
]
CASES: dict[str, tuple[list[dict[str, Any]], float | None]] = {
    "nothing": ([], 0.1),
    "latency counts from the scheduled time": (
        [{"fired_s": 1.002, "sent_s": 1.009, "done_s": 1.05}], None,
    ),
    "the warm-up counts for nothing but wrong answers": (
        [
            EARLY | {"done_s": -0.05, "wrong": True},
            EARLY | {"done_s": 0.05},
            {},
            {"scheduled_s": 1.9, "fired_s": 1.9, "sent_s": 1.9, "done_s": 2.5},
        ],
        None,
    ),
    "what had no good answer is outside the goal": (
        [
            {},
            {"done_s": 1.5},
            {"status": 503},
            NO_ANSWER | {"status": LOST},
            NO_ANSWER | {"status": UNANSWERED, "sent_s": math.nan},
        ],
        0.1,
    ),
    "pending at Ctrl-C: the older two have missed the goal": (
        [
            {},
            NO_ANSWER | {"status": PENDING},
            NO_ANSWER | {"status": PENDING, "sent_s": math.nan},
            NO_ANSWER | {"status": PENDING, "scheduled_s": 1.95, "fired_s": 1.95, "sent_s": 1.95},
        ],
        0.1,
    ),
    # A tenth of 34 is three; the bodies of 100 bytes are equally long. Those that were refused or lost count
    # for the goal; those that were never sent have no body.
    "long bodies": ([*OF_LENGTHS, {"body_bytes": 5000, "scheduled_s": -1.0}], 0.1),
    "streams": (
        [
            {},
            {"first_s": 1.1, "done_s": 1.5, "chunks": 5},
            {"first_s": 1.2, "done_s": 1.2, "chunks": 1},
            {"first_s": 1.3, "done_s": 1.4, "chunks": 9, "status": 500},
        ],
        None,
    ),
}  # fmt: skip


def shown(value: Any) -> Any:
    """Figures in three digits, without those that are missing."""
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items() if one is not None}
    return float(f"{value:.3g}") if isinstance(value, float) else value


def test_summaries() -> None:
    """``summaries.txt`` has the figures of each case."""
    lines = []
    for name, (changes, goal_s) in CASES.items():
        summary = summarise(samples(*changes), seconds=2.0, goal_s=goal_s)
        lines.append(f"{name}: {summary.good} good, {summary.shed} shed")
        lines += [f"    {figure}: {value}" for figure, value in shown(asdict(summary)).items()]
    check_texts(Path(__file__).with_name("summaries.txt"), "\n".join(lines) + "\n")


def test_long_bodies_are_marked_if_any_are_long() -> None:
    assert has_long_body(samples(*OF_LENGTHS)).tolist() == [True, False, *[False] * 30, True, True, True]


@pytest.mark.parametrize(
    ("count", "known"),
    [(4, []), (10, ["50"]), (49, ["50"]), (50, ["50", "90"]), (500, ["50", "90", "99"]), (5000, None)],
)
def test_a_percentile_needs_five_samples_beyond_it(count: int, known: list[str] | None) -> None:
    found = spread(np.arange(count) / 1000)

    assert found is not None
    told = [name for name, value in found.percentiles_ms.items() if value is not None]
    assert told == (["50", "90", "99", "99.9"] if known is None else known)


@at_most(60)
@given(st.lists(st.floats(0, 100), min_size=10, max_size=200))
def test_percentiles_are_times_that_were_seen(seconds: list[float]) -> None:
    found = spread(np.array(seconds))

    assert found is not None
    known = [value for value in found.percentiles_ms.values() if value is not None]
    assert set(known) <= {value * 1000 for value in seconds}
    assert all(low <= high for low, high in pairwise([*known, found.max_ms]))
    assert enough(len(seconds), percentile=50)


def test_batches_count_once_however_many_answers_tell_of_them() -> None:
    assert batch_rows(np.array([9] * 9 + [1, 0, 0])) == pytest.approx((8.2, 5.0))
    assert batch_rows(np.array([0])) == (None, None)


def late(lag_s: float, latency_s: float, **changes: Any) -> dict[str, Any]:
    return {"fired_s": 1.0 + lag_s, "sent_s": 1.0 + lag_s, "done_s": 1.0 + latency_s, **changes}


WARM_UP = {"scheduled_s": -1.0, "fired_s": 9.0}


@pytest.mark.parametrize(
    ("seen", "limit_ms"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([late(0.0009, 0.001), WARM_UP], None, id="a millisecond of quick responses"),
        pytest.param([late(0.0011, 0.001), WARM_UP], 1, id="more than a millisecond"),
        pytest.param([late(0.0019, 0.020)], None, id="a tenth of the latency"),
        pytest.param([late(0.0021, 0.020)], 2, id="more than a tenth of the latency"),
        pytest.param([late(0.5, 0.6)], 60, id="half a second"),
        pytest.param([late(0.9, 1.0), *[{"sent_s": 1.2, "done_s": 1.3}] * 999], None, id="one of a thousand"),
        pytest.param([late(0.05, 8.0)], None, id="slow responses"),
        pytest.param([late(0.05, 8.0, first_s=1.2, chunks=7)], 20, id="a stream is slow by its first chunk"),
        pytest.param([late(0.002, 0.01, status=503)], 1, id="no good response"),
        pytest.param([late(0.0005, 0.01, status=503)], None, id="no good response, and in time"),
    ],
)
def test_a_late_generator_voids_the_run(seen: list[dict[str, Any]], limit_ms: float | None) -> None:
    """Unless its lag is below a tenth of the latency, or a millisecond."""
    reason = void_reason(samples(*seen))

    assert bool(reason) == (limit_ms is not None)
    assert limit_ms is None or f"above the limit of {limit_ms} ms" in reason
