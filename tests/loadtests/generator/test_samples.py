"""Summaries of samples."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_loadtests.generator.samples import (
    LOST,
    UNANSWERED,
    Recorder,
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
    recorder = Recorder()
    for changed in changes:
        recorder.add(*(GOOD | changed).values())
    return recorder.samples()


def test_latency_counts_from_the_scheduled_time() -> None:
    summary = summarise(samples({"fired_s": 1.002, "sent_s": 1.009, "done_s": 1.05}), seconds=2.0)

    assert summary.latency is not None
    assert summary.latency.max_ms == pytest.approx(50)
    assert summary.lag is not None
    assert summary.lag.max_ms == pytest.approx(2)
    assert summary.waited_for_connection == 1
    assert summary.rest is not None
    assert summary.rest.mean_ms == pytest.approx(50 - 2 - 5)


def test_the_warm_up_counts_for_nothing_but_wrong_answers() -> None:
    early = {"scheduled_s": -0.1, "fired_s": -0.1, "sent_s": -0.1}
    summary = summarise(
        samples(
            early | {"done_s": -0.05, "wrong": True},
            early | {"done_s": 0.05},
            {},
            {"scheduled_s": 1.9, "fired_s": 1.9, "sent_s": 1.9, "done_s": 2.5},
        ),
        seconds=2.0,
    )

    assert (summary.requests, summary.good, summary.wrong) == (2, 2, 1)
    assert (summary.offered_per_s, summary.answered_per_s) == (1.0, 1.0)


def test_what_had_no_good_answer_is_outside_the_goal() -> None:
    summary = summarise(
        samples(
            {},
            {"done_s": 1.5},
            {"status": 503},
            NO_ANSWER | {"status": LOST},
            NO_ANSWER | {"status": UNANSWERED, "sent_s": math.nan},
        ),
        seconds=2.0,
        goal_s=0.1,
    )

    assert summary.in_goal == pytest.approx(0.2)
    assert summary.statuses == {200: 2, 503: 1, LOST: 1, UNANSWERED: 1}
    assert (summary.good, summary.shed, summary.waited_for_connection) == (2, 1, 1)
    assert summary.latency is not None
    assert summary.latency.count == 2


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


def test_long_bodies_have_figures_of_their_own() -> None:
    """Those that were refused or lost count for the goal; those that were never sent have no body."""
    short = [{"body_bytes": 10}] * 30
    long: list[dict[str, Any]] = [
        {"body_bytes": 100, "done_s": 1.05},
        {"body_bytes": 120, "done_s": 1.15},
        {"body_bytes": 100, "status": 503},
        NO_ANSWER | {"body_bytes": 100, "status": LOST},
        NO_ANSWER | {"body_bytes": 0, "status": UNANSWERED},
    ]
    early = {"body_bytes": 5000, "scheduled_s": -1.0}
    found = samples(*long[3:], *short, *long[:3], early)
    # A tenth of 34 is three; the bodies of 100 bytes are equally long.
    summary = summarise(found, seconds=2.0, goal_s=0.1)

    assert has_long_body(found[:-1]).tolist() == [True, False, *[False] * 30, True, True, True]
    assert summary.long_bodies is not None
    assert summary.long_bodies.latency is not None
    assert (summary.long_bodies.from_bytes, summary.long_bodies.shortest_bytes) == (100, 10)
    assert summary.long_bodies.longest_bytes == 120
    assert summary.long_bodies.latency.count == 2
    assert summary.long_bodies.latency.mean_ms == pytest.approx(100)
    assert summary.long_bodies.in_goal == 0.25
    assert summarise(found, seconds=2.0).long_bodies is not None
    assert summarise(samples({}, {}), seconds=2.0, goal_s=0.1).long_bodies is None


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


def test_streams_have_figures_of_their_own() -> None:
    summary = summarise(
        samples(
            {},
            {"first_s": 1.1, "done_s": 1.5, "chunks": 5},
            {"first_s": 1.2, "done_s": 1.2, "chunks": 1},
            {"first_s": 1.3, "done_s": 1.4, "chunks": 9, "status": 500},
        ),
        seconds=2.0,
    )

    assert summary.first_chunk is not None
    assert summary.first_chunk.count == 2
    assert summary.first_chunk.mean_ms == pytest.approx(150)
    assert summary.chunk_gap is not None
    assert summary.chunk_gap.count == 1
    assert summary.chunk_gap.mean_ms == pytest.approx(100)
    assert (summary.chunks_per_s, summary.chunks_by_answer) == (3.0, 3.0)
    assert summary.latency is not None
    assert summary.latency.max_ms == pytest.approx(500)


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


def test_figures_that_nothing_was_seen_of_are_missing() -> None:
    nothing, no_streams = summarise(samples(), seconds=2.0, goal_s=0.1), summarise(samples({}), seconds=2.0)

    assert (nothing.requests, nothing.latency, nothing.in_goal, nothing.lag) == (0, None, None, None)
    assert (no_streams.first_chunk, no_streams.chunk_gap) == (None, None)
    assert (no_streams.chunks_per_s, no_streams.chunks_by_answer) == (None, None)
