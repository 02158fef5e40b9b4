"""Batch times: the sizes measured, the line through them, and faults."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.loadtests.fake_server import reply, serving_batches
from uncork_loadtests.servers import BenchError, Server
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.tuning.batch_times import BatchTimes, SizeTime, fit, measure, sizes_up_to

PLAN = Plan(url="http://127.0.0.1:1/x", payload=Payload(bodies=(b"[1]",)), clients=1)


def seen(milliseconds: Callable[[int], float], *, largest: int = 64) -> list[SizeTime]:
    times = {rows: milliseconds(rows) for rows in sizes_up_to(largest)}
    return [SizeTime(rows=rows, median_ms=ms, times_ms=(ms, ms)) for rows, ms in times.items()]


def padded(rows: int) -> int:
    """Rows of a batch that is padded to a power of two."""
    return 1 << (rows - 1).bit_length()


@given(st.integers(1, 5000))
def test_sizes_double_and_show_padding(largest: int) -> None:
    sizes = sizes_up_to(largest)

    assert (sizes[0], sizes[-1]) == (1, largest)
    assert all(before < after <= 2 * before for before, after in pairwise(sizes))
    assert {power + 1 for power in sizes if padded(power) == power and power < largest} <= set(sizes)


@at_most(30)
@given(intercept=st.floats(0.1, 100), slope=st.floats(0, 10))
def test_a_line_is_found(intercept: float, slope: float) -> None:
    line = fit(seen(lambda rows: intercept + slope * rows))

    assert line.milliseconds(40) == pytest.approx(intercept + slope * 40, rel=1e-6)
    assert line.worst_deviation == pytest.approx(0, abs=1e-6)
    assert (line.noise_cv, line.steps) == (0, ())


@at_most(30)
@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 1e4)), min_size=1, max_size=20))
def test_no_part_of_the_line_is_negative(points: list[tuple[int, float]]) -> None:
    sizes = [SizeTime(rows=rows, median_ms=ms, times_ms=(ms,)) for rows, ms in points]
    line = fit(sizes)
    deviations = [abs(size.median_ms / line.milliseconds(size.rows) - 1) for size in sizes]

    assert min(line.intercept_ms, line.slope_ms) >= 0
    assert abs(line.worst_deviation) == pytest.approx(max(deviations), abs=1e-9)


@pytest.mark.parametrize(
    ("milliseconds", "steps"),
    [(lambda rows: 20 + 3 * padded(rows), (4, 8, 16, 32)), (lambda rows: 100.0 if rows == 9 else 10.0, ())],
    ids=["padding", "one slow size"],
)
def test_steps_show_padding(milliseconds: Callable[[int], float], steps: tuple[int, ...]) -> None:
    line = fit(seen(milliseconds))

    assert line.steps == steps
    assert steps or (line.worst_rows == 9 and line.worst_deviation > 1)


def test_noise_is_that_of_batches_of_one_size() -> None:
    sizes = [SizeTime(rows=rows, median_ms=10.0, times_ms=(9.0, 10.0, 11.0, 500.0)) for rows in (1, 8)]

    assert fit(sizes).noise_cv == pytest.approx(((0.01 + 0.01 + 1) / 4) ** 0.5)


def measured(answer: Callable[[int], bytes], *, largest: int = 4, goal_ms: float = 50.0) -> BatchTimes:
    async def run() -> BatchTimes:
        async with serving_batches(lambda lengths: answer(len(lengths))) as url:
            port = int(url.split(":")[2].partition("/")[0])
            server = Server(name="fake", command=(), port=port, pid=os.getpid())
            plan = replace(PLAN, url=url)
            return await asyncio.to_thread(
                measure, server, plan, largest=largest, goal_ms=goal_ms, tell=lambda _: None
            )

    return asyncio.run(run())


def told(rows: int, milliseconds: float, *, status: str = "200 OK") -> bytes:
    fields = f"X-Batch-Size: {rows}\r\nServer-Timing: queue;dur=1.00, batch;dur={milliseconds:.2f}\r\n"
    return reply(b"1", status=status, fields=fields)


def test_sizes_are_those_that_answers_tell() -> None:
    found = measured(lambda requests: told(2 * requests, 10 + requests))

    assert [(size.rows, size.median_ms) for size in found.sizes] == [(2, 11), (4, 12), (6, 13), (8, 14)]
    assert (found.rows_per_request, found.stopped) == (2, "")
    assert found.gateway_cpu_us is not None


@pytest.mark.parametrize(
    ("answer", "stopped"),
    [
        (lambda requests: told(requests, 30.0 * requests), "2 concurrent requests took longer than the goal"),
        (
            lambda requests: told(requests, 1.0, status="500 Oh" if requests > 2 else "200 OK"),
            "3 concurrent requests failed: status 500: 1",
        ),
    ],
)
def test_measuring_stops_at_batches_that_fail_or_take_too_long(
    answer: Callable[[int], bytes], stopped: str
) -> None:
    found = measured(answer)

    assert ([size.rows for size in found.sizes], found.stopped) == ([1, 2], stopped)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (told(1, 1.0, status="400 No"), "a single request failed: status 400"),
        (reply(b"1"), "a single request failed: the response has no X-Batch-Size or no Server-Timing"),
    ],
)
def test_a_lone_request_must_have_a_good_answer(answer: bytes, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        measured(lambda _: answer)
