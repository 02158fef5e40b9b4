"""Sentences with the numbers of real services, as a person reads them."""

from __future__ import annotations

import pytest

from tests.gateway.pages.status.staged import FAILURE, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.explain import sentence
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

FOREST = Estimate(intercept_s=0.0177, slope_s=0.00008, spread=0.12, earned_rows=64)
EMBEDDING = Estimate(intercept_s=0.0042, slope_s=0.0031, spread=0.07, earned_rows=64)
ONE_ROW = Estimate(intercept_s=0.0471, slope_s=0.0047, spread=0.24, earned_rows=2)
TOKENS = Estimate(intercept_s=0.006, slope_s=0.00006, spread=0.15, earned_rows=64)
NO_WEIGHTS = "no worker is ready: worker 0 failed in setup: OSError: no weights (7 times in a row)"
LARGE = {"max_batch_rows": 1000}

CASES: dict[str, tuple[Names, Figures, str]] = {
    "the first request": (
        SERVICE,
        figures(stats(LARGE, known_rows=(1.0, 1.0)), recent=recent(batches=1, estimate=None)),
        """
        1 request in the last 30 s: too few to say more. Too few batches have succeeded to say how long one
        takes.
        """,
    ),
    "a forest, little to do": (
        SERVICE,
        figures(
            stats(LARGE, known_rows=(1.0, 16.0)),
            recent=recent(
                batches=420, ran_s=0.0182, took_s=0.0193, queued_s=0.0004, rate=14.1, estimate=FOREST
            ),
        ),
        """
        In the last 30 s, 14.1 rows/s arrived, in batches of 1 row on average. A request spent 0.4 ms queued
        and 18.2 ms in its batch; p99 latency was 19.9 ms (goal 300 ms). A batch takes 17.7 ms plus 0.08 ms
        per row (±12 %). Nothing limits it: 1 worker can answer at least 2805 rows/s.
        """,
    ),
    "an embedding, overloaded": (
        SERVICE,
        figures(
            stats(LARGE, known_rows=(1.0, 95.0)),
            recent=recent(
                batches=104, each=90, ran_s=0.283, took_s=0.31, queued_s=0.14, rate=612, estimate=EMBEDDING,
                sheds={"deadline": 9000},
            ),
        ),
        """
        9000 of 18360 requests were refused. In the last 30 s, 612 rows/s arrived, in batches of 90 rows on
        average. A request spent 140 ms queued and 283 ms in its batch; p99 latency was 498 ms (goal 300
        ms). A batch takes 3.1 ms per row (±7 %). The workers limit it: 1 worker can answer 317 rows/s.
        """,
    ),
    "policy none, after a burst": (
        SERVICE,
        figures(
            stats({"policy": "none"}, limit_rows=1, known_rows=(1.0, 1.0)),
            recent=recent(
                batches=560, ran_s=0.0518, took_s=0.63, queued_s=0.575, rate=18.7, estimate=ONE_ROW
            ),
            goal_s=1.0,
        ),
        """
        In the last 30 s, 18.7 rows/s arrived. A request spent 575 ms queued and 51.8 ms in its batch; p99
        latency was 748 ms (goal 1000 ms). A batch of 1 row takes 51.8 ms (±24 %); no other size was seen.
        The workers limit it: 1 worker can answer 19.3 rows/s.
        """,
    ),
    "every answer a 500": (
        SERVICE,
        figures(
            stats(known_rows=None, smallest_rows=0.0),
            recent=recent(errors={500: 213}, rate=7.1, estimate=None),
            failure=FAILURE,
        ),
        """
        213 of 213 requests ended in an error: the handler raised IndexError (service.py:12). In the last 30
        s, 7.1 rows/s arrived. Too few batches have succeeded to say how long one takes.
        """,
    ),
    "some errors": (
        SERVICE,
        figures(recent=recent(batches=300, each=4, errors={500: 45, 502: 2}, rate=42), failure=FAILURE),
        """
        47 of 1247 requests ended in an error: 45 because the handler raised IndexError (service.py:12), 2
        because a worker was lost. In the last 30 s, 42 rows/s arrived, in batches of 4 rows on average. A
        request spent 1 ms queued and 12 ms in its batch; p99 latency was 14.9 ms (goal 300 ms). A batch
        takes 10 ms plus 2 ms per row (±10 %). 1 worker can answer 432 rows/s.
        """,
    ),
    "rows that differ": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192}, known_rows=(12.0, 4096.0)),
            recent=recent(
                batches=600, each=5, rows=84, rate=8400, ran_s=0.031, queued_s=0.011, estimate=TOKENS
            ),
            weighs=True,
        ),
        """
        In the last 30 s, 8400 units of cost/s arrived, in batches of 420 units of cost (5 requests) on
        average. A request spent 11 ms queued and 31 ms in its batch; p99 latency was 14.9 ms (goal 300 ms).
        A batch takes 6 ms plus 0.06 ms per unit of cost (±15 %); with 102 units of cost in each, 1 worker
        keeps up. Nothing limits it: 1 worker can answer 16233 units of cost/s.
        """,
    ),
    "a proxy whose server fails": (
        PROXY,
        figures(
            stats(known_rows=None, smallest_rows=0.0),
            recent=recent(errors={500: 40}, sheds={"no_worker": 3}, rate=2, estimate=None),
            work=work(2),
            goal_s=None,
        ),
        """
        40 of 43 requests ended in an error: the model server answered 500. 3 of 43 requests were refused.
        In the last 30 s, 2 rows/s arrived. Too few batches have succeeded to say how long one takes.
        """,
    ),
    "no worker": (
        SERVICE,
        figures(
            recent=recent(batches=20, sheds={"no_worker": 44}, rate=3),
            work=work(0),
            not_ready_reason=NO_WEIGHTS,
        ),
        """
        44 of 64 requests were refused. In the last 30 s, 3 rows/s arrived, in batches of 1 row on average.
        A request spent 1 ms queued and 12 ms in its batch; p99 latency was 14.9 ms (goal 300 ms). A batch
        takes 10 ms plus 2 ms per row (±10 %). Nothing can be answered: no worker is ready: worker 0 failed
        in setup: OSError: no weights (7 times in a row).
        """,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_reads_well(case: str) -> None:
    names, made, expected = CASES[case]

    assert sentence(made, names) == " ".join(expected.split())
