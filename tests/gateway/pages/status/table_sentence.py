"""Every sentence about the recent past of an API, with the numbers of real services."""

from __future__ import annotations

from tests.gateway.pages.status.staged import FAILURE, RUNNING, TOKENS, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

FOREST = Estimate(intercept_s=0.0177, slope_s=0.00008, spread=0.12, earned_rows=32)
FLAT = Estimate(intercept_s=0.0177, slope_s=1e-7, spread=0.29, earned_rows=64)
EMBEDDING = Estimate(intercept_s=0.0042, slope_s=0.0031, spread=0.07, earned_rows=190)
ONE_ROW = Estimate(intercept_s=0.0471, slope_s=0.0047, spread=0.24, earned_rows=2)
ONE_SIZE = Estimate(intercept_s=0.082, slope_s=0.0, spread=0.05, earned_rows=32)
SLOW_SERVER = Estimate(intercept_s=11.2, slope_s=0.15, spread=0.004, earned_rows=16)
NO_WEIGHTS = "no worker is ready: worker 0 failed in setup: OSError: no weights (7 times in a row)"
LARGE = {"max_batch_rows": 1000}
CAP_4 = {"max_batch_rows": 4}
NONE = stats({"policy": "none"}, limit_rows=1, known_rows=(1.0, 1.0))

CASES: dict[str, tuple[Names, Figures, str]] = {
    "idle": (
        SERVICE,
        figures(),
        """
        No requests in the last 30 s. A batch takes about 10 ms plus 2 ms per row (±10 %). At full load, 1
        worker answers about 432 rows/s.
        """,
    ),
    "idle, a proxy": (
        PROXY,
        figures(work=work(2), goal_s=None),
        """
        No requests in the last 30 s. A batch takes about 10 ms plus 2 ms per row (±10 %). At full load, 2
        concurrent calls answer about 865 rows/s.
        """,
    ),
    "the first request": (
        SERVICE,
        figures(stats(LARGE, known_rows=(1.0, 1.0)), recent=recent(batches=1, estimate=None)),
        """
        1 request in the last 30 s: too few for rates and percentiles. Too few batches have succeeded to
        estimate how long one takes.
        """,
    ),
    "the first second": (
        SERVICE,
        figures(stats(LARGE, known_rows=(30.0, 32.0)), recent=recent(batches=30, each=31, seconds=0.4)),
        """
        930 requests in the first second: rates and percentiles follow. A batch of 31 rows takes about 72
        ms (±10 %); too few of other sizes have run to compare.
        """,
    ),
    "one request in a new worker": (
        SERVICE,
        figures(stats(queued_requests=1, known_rows=None), recent=recent(estimate=None)),
        """
        No request was answered in the last 30 s; 1 request is queued or running. Too few batches have
        succeeded to estimate how long one takes.
        """,
    ),
    "a batch that hangs": (
        SERVICE,
        figures(stats(queued_requests=3), work=work(1, running=[RUNNING._replace(requests=2)])),
        """
        No request was answered in the last 30 s; 5 requests are queued or running. A batch takes about 10
        ms plus 2 ms per row (±10 %). At full load, 1 worker answers about 432 rows/s.
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
        In the last 30 s, 14 rows/s arrived, in batches of about 1 row. On average, a request was queued for
        0.4 ms and ran for 18 ms. The p99 latency was 20 ms, within the goal of 300 ms. A batch takes about
        18 ms plus 80 µs per row (±12 %). There is no bottleneck: at full load, 1 worker answers at least
        843 rows/s.
        """,
    ),
    "a flat forest": (
        SERVICE,
        figures(recent=recent(estimate=FLAT)),
        """
        No requests in the last 30 s. A batch takes about 18 ms (±29 %), whatever its size. At full load, 1
        worker answers about 1,810 rows/s.
        """,
    ),
    "busy": (
        SERVICE,
        figures(recent=recent(batches=1000, each=6, reason="not_worth_waiting", ran_s=0.022, took_s=0.025)),
        """
        In the last 30 s, 200 rows/s arrived, in batches of about 6 rows. On average, a request was queued
        for 1 ms and ran for 22 ms. The p99 latency was 30 ms, within the goal of 300 ms. A batch takes
        about 10 ms plus 2 ms per row (±10 %). To sustain this rate, batches need at least 3.3 rows on
        average. There is no bottleneck: at full load, 1 worker answers about 432 rows/s.
        """,
    ),
    "clients that send one row, one at a time": (
        SERVICE,
        figures(
            stats(LARGE, known_rows=(1.0, 1.0)),
            recent=recent(batches=560, rate=18.7, ran_s=0.0518, took_s=0.053, estimate=ONE_ROW),
        ),
        """
        In the last 30 s, 19 rows/s arrived, in batches of about 1 row. On average, a request was queued for
        1 ms and ran for 52 ms. The p99 latency was 75 ms, within the goal of 300 ms. A batch of 1 row takes
        about 52 ms (±24 %); no other size has run yet. There is no bottleneck.
        """,
    ),
    "late, of one size": (
        SERVICE,
        figures(
            stats(LARGE, known_rows=(1.0, 1.0)),
            recent=recent(batches=30, rate=1, ran_s=0.06, took_s=0.35, queued_s=0.28, estimate=ONE_ROW),
        ),
        """
        In the last 30 s, 1 row/s arrived, in batches of about 1 row. On average, a request was queued for
        280 ms and ran for 60 ms. The p99 latency was 498 ms, above the goal of 300 ms. A batch of 1 row
        takes about 52 ms (±24 %); no other size has run yet.
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
        The gateway refused 9,000 of 18,360 requests (49 %). In the last 30 s, 612 rows/s arrived, in
        batches of about 90 rows. On average, a request was queued for 140 ms and ran for 283 ms. The p99
        latency was 498 ms, above the goal of 300 ms. A batch takes about 3.1 ms per row (±7 %). The
        bottleneck is the number of workers: at full load, 1 worker answers about 317 rows/s.
        """,
    ),
    "nearly all batches of one size": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 16}, known_rows=(1.0, 16.0), slope_error_s=0.005),
            recent=recent(
                batches=560, each=16, reason="full", ran_s=0.082, took_s=0.17, rate=190, estimate=ONE_SIZE
            ),
        ),
        """
        In the last 30 s, 190 rows/s arrived, in batches of about 16 rows. On average, a request was queued
        for 1 ms and ran for 82 ms. The p99 latency was 200 ms, within the goal of 300 ms. A batch of 16
        rows takes about 82 ms (±5 %); too few of other sizes have run to compare. The bottleneck is the
        number of workers: at full load, 1 worker answers about 195 rows/s.
        """,
    ),
    "policy none, after a burst": (
        SERVICE,
        figures(
            NONE,
            recent=recent(
                batches=560, ran_s=0.0518, took_s=0.63, queued_s=0.575, rate=18.7, estimate=ONE_ROW
            ),
            goal_s=1.0,
        ),
        """
        In the last 30 s, 19 rows/s arrived. On average, a request was queued for 575 ms and ran for 52 ms.
        The p99 latency was 748 ms, within the goal of 1,000 ms. A batch of 1 row takes about 52 ms (±24 %);
        no other size has run yet. The bottleneck is the number of workers: at full load, 1 worker answers
        about 19 rows/s.
        """,
    ),
    "a service next to a busy one": (
        SERVICE,
        figures(recent=recent(batches=1500, each=6), others_share=0.4, busiest_other="slow"),
        """
        In the last 30 s, 300 rows/s arrived, in batches of about 6 rows. On average, a request was queued
        for 1 ms and ran for 12 ms. The p99 latency was 15 ms, within the goal of 300 ms. A batch takes
        about 10 ms plus 2 ms per row (±10 %). To sustain this rate, batches need at least 7.5 rows on
        average. The bottleneck is the number of workers: at full load, 1 worker answers about 432 rows/s.
        Other APIs took 40 % of the workers' time.
        """,
    ),
    "a model next to a busy one": (
        PROXY,
        figures(recent=recent(batches=1500, each=6), others_share=0.4, busiest_other="slow", goal_s=None),
        """
        In the last 30 s, 300 rows/s arrived, in batches of about 6 rows. On average, a request was queued
        for 1 ms and ran for 12 ms. The p99 latency was 15 ms. A batch takes about 10 ms plus 2 ms per row
        (±10 %). To sustain this rate, batches need at least 7.5 rows on average. The bottleneck is the
        number of concurrent calls: at full load, 1 concurrent call answers about 432 rows/s. Other models
        took 40 % of the time of the concurrent calls.
        """,
    ),
    "a goal that is too short": (
        SERVICE,
        figures(recent=recent(batches=30, each=8, rate=400), goal_s=0.030),
        """
        In the last 30 s, 400 rows/s arrived, in batches of about 8 rows. On average, a request was queued
        for 1 ms and ran for 12 ms. The p99 latency was 15 ms, within the goal of 30 ms. A batch takes about
        10 ms plus 2 ms per row (±10 %). To sustain this rate, batches need at least 20 rows on average. The
        bottleneck is the goal: behind another batch, one that meets it has at most 1 row. At full load, 1
        worker answers about 300 rows/s.
        """,
    ),
    "a goal out of reach": (
        SERVICE,
        figures(
            stats(smallest_rows=200.0),
            recent=recent(batches=30, rows=200, ran_s=0.41, took_s=0.42, queued_s=0.0002),
        ),
        """
        In the last 30 s, 200 rows/s arrived, in batches of about 200 rows (1 request). On average, a
        request was queued for 0.2 ms and ran for 410 ms. The p99 latency was 498 ms, above the goal of 300
        ms. A batch takes about 10 ms plus 2 ms per row (±10 %). To sustain this rate, batches need at least
        3.3 rows on average. The goal cannot be met: the smallest request alone takes about 410 ms.
        """,
    ),
    "a low cap": (
        SERVICE,
        figures(stats(CAP_4), recent=recent(batches=2250, each=4, reason="full", took_s=0.1)),
        """
        In the last 30 s, 300 rows/s arrived, in batches of about 4 rows. On average, a request was queued
        for 1 ms and ran for 12 ms. The p99 latency was 100 ms, within the goal of 300 ms. A batch takes
        about 10 ms plus 2 ms per row (±10 %). To sustain this rate, batches need at least 7.5 rows on
        average. The bottleneck is the batch cap: batches have at most 4 rows. At full load, 1 worker
        answers about 222 rows/s.
        """,
    ),
    "a cap of one": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 1}, known_rows=(1.0, 1.0)),
            recent=recent(batches=60, rate=2, estimate=ONE_ROW),
            work=work(2),
        ),
        """
        In the last 30 s, 2 rows/s arrived. On average, a request was queued for 1 ms and ran for 12 ms. The
        p99 latency was 15 ms, within the goal of 300 ms. A batch of 1 row takes about 52 ms (±24 %); no
        other size has run yet. There is no bottleneck: at full load, 2 workers answer about 39 rows/s.
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
        All 213 requests failed: the handler raised IndexError (service.py:12). In the last 30 s, 7.1 rows/s
        arrived. Too few batches have succeeded to estimate how long one takes.
        """,
    ),
    "the only request timed out": (
        SERVICE,
        figures(recent=recent(errors={504: 1}, seconds=0.8)),
        """
        The only request failed: the batch exceeded its timeout. 1 request in the last second: too few for
        rates and percentiles. A batch takes about 10 ms plus 2 ms per row (±10 %). At full load, 1 worker
        answers about 432 rows/s.
        """,
    ),
    "some errors": (
        SERVICE,
        figures(recent=recent(batches=300, each=4, errors={500: 45, 502: 2}, rate=42), failure=FAILURE),
        """
        47 of 1,247 requests (4 %) failed: 45 because the handler raised IndexError (service.py:12) and 2
        because the worker died while running the batch. In the last 30 s, 42 rows/s arrived, in batches of
        about 4 rows. On average, a request was queued for 1 ms and ran for 12 ms. The p99 latency was 15
        ms, within the goal of 300 ms. A batch takes about 10 ms plus 2 ms per row (±10 %). At full load, 1
        worker answers about 432 rows/s.
        """,
    ),
    "wrong requests": (
        SERVICE,
        figures(recent=recent(batches=300, statuses={422: 290, 499: 10})),
        """
        In the last 30 s, 10 rows/s arrived, in batches of about 1 row. 300 of 600 requests (50 %) got a 4xx
        status. On average, a request was queued for 1 ms and ran for 12 ms. The p99 latency was 15 ms,
        within the goal of 300 ms. A batch takes about 10 ms plus 2 ms per row (±10 %). There is no
        bottleneck: at full load, 1 worker answers about 432 rows/s.
        """,
    ),
    "nothing but wrong requests": (
        SERVICE,
        figures(recent=recent(statuses={400: 40}, took_s=0.0002, rate=0)),
        """
        In the last 30 s, 0 rows/s arrived. 40 of 40 requests (100 %) got a 4xx status. The p99 latency was
        0.49 ms, within the goal of 300 ms. A batch takes about 10 ms plus 2 ms per row (±10 %). There is no
        bottleneck: at full load, 1 worker answers about 432 rows/s.
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
        In the last 30 s, 8,400 units of cost/s arrived, in batches of about 420 units of cost (5 requests).
        On average, a request was queued for 11 ms and ran for 31 ms. The p99 latency was 15 ms, within the
        goal of 300 ms. A batch takes about 6 ms plus 60 µs per unit of cost (±15 %). To sustain this rate,
        batches need at least 102 units of cost on average. There is no bottleneck: at full load, 1 worker
        answers about 16,200 units of cost/s.
        """,
    ),
    "rows that are padded": (
        SERVICE,
        figures(
            stats(
                {"max_batch_rows": 8192}, known_rows=(12.0, 4096.0), padding=Padding("longest", 0.12, 512.0)
            ),
            recent=recent(estimate=TOKENS),
            weighs=True,
        ),
        """
        No requests in the last 30 s. A batch takes about 6 ms plus 60 µs per unit of cost (±15 %). Batches
        are padded to their longest row; 12 % of the work is padding. Rows of more than 512 units of cost
        take no more time. At full load, 1 worker answers about 16,200 units of cost/s.
        """,
    ),
    "rows that differ and are not padded": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192}, known_rows=(12.0, 4096.0), padding=Padding("sum", 0.0)),
            recent=recent(estimate=TOKENS),
            weighs=True,
        ),
        """
        No requests in the last 30 s. A batch takes about 6 ms plus 60 µs per unit of cost (±15 %). Batch
        times depend on the sum of the costs; the model does not pad. At full load, 1 worker answers about
        16,200 units of cost/s.
        """,
    ),
    "bodies that differ": (
        SERVICE,
        figures(stats(padding=Padding("bytes", 0.0))),
        """
        No requests in the last 30 s. A batch takes about 10 ms plus 2 ms per row (±10 %). Batch times
        depend on the bytes of the request bodies; the model does not pad. At full load, 1 worker answers
        about 432 rows/s.
        """,
    ),
    "bodies that differ and are padded": (
        SERVICE,
        figures(stats(padding=Padding("longest_bytes", 0.345, 2048.3))),
        """
        No requests in the last 30 s. A batch takes about 10 ms plus 2 ms per row (±10 %). Batch times
        depend on the bytes of the request bodies. Batches are padded to their longest row; 34 % of the work
        is padding. Rows of more than 2,050 bytes take no more time. At full load, 1 worker answers about
        432 rows/s.
        """,
    ),
    "a low cap that counts padding": (
        SERVICE,
        figures(
            stats(CAP_4, padding=Padding("longest", 0.5)),
            recent=recent(batches=60, each=2, reason="full", rate=140, took_s=0.1),
        ),
        """
        In the last 30 s, 140 rows/s arrived, in batches of about 2 rows. On average, a request was queued for
        1 ms and ran for 12 ms. The p99 latency was 100 ms, within the goal of 300 ms. A batch takes about 10
        ms plus 2 ms per row (±10 %). Batches are padded to their longest row; 50 % of the work is padding.
        The bottleneck is the batch cap: batches have at most 4 rows including padding. At full load, 1
        worker answers about 143 rows/s.
        """,
    ),
    "a cost of one": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192}, known_rows=(1.0, 1.0)),
            recent=recent(batches=1, estimate=ONE_ROW),
            weighs=True,
        ),
        """
        1 request in the last 30 s: too few for rates and percentiles. A batch of 1 unit of cost takes about
        52 ms (±24 %); no other size has run yet.
        """,
    ),
    "a proxy before a slow server": (
        PROXY,
        figures(
            stats(known_rows=(1.0, 8.0)),
            recent=recent(batches=60, rate=2, ran_s=11.3, took_s=14, queued_s=2.7, estimate=SLOW_SERVER),
            work=work(8),
            goal_s=None,
        ),
        """
        In the last 30 s, 2 rows/s arrived, in batches of about 1 row. On average, a request was queued for
        2,700 ms and ran for 11 s. The p99 latency was 20 s. A batch takes about 11 s plus 150 ms per row
        (±1 %). To sustain this rate, batches need at least 2.9 rows on average. There is no bottleneck: at
        full load, 8 concurrent calls answer at least 5.2 rows/s.
        """,
    ),
    "a proxy whose server fails": (
        PROXY,
        figures(
            stats(known_rows=None, smallest_rows=0.0),
            recent=recent(errors={500: 36, 502: 3, 504: 1}, sheds={"no_worker": 3}, rate=2, estimate=None),
            work=work(2),
            goal_s=None,
        ),
        """
        40 of 43 requests (93 %) failed: 36 because the model server returned 500, 3 because the connection
        to the model server was lost and 1 because the batch exceeded its timeout. The gateway refused 3 of
        43 requests (7 %). In the last 30 s, 2 rows/s arrived. Too few batches have succeeded to estimate
        how long one takes.
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
        The gateway refused 44 of 64 requests (69 %). In the last 30 s, 3 rows/s arrived, in batches of
        about 1 row. On average, a request was queued for 1 ms and ran for 12 ms. The p99 latency was 15 ms,
        within the goal of 300 ms. A batch takes about 10 ms plus 2 ms per row (±10 %). No worker is ready:
        worker 0 failed in setup: OSError: no weights (7 times in a row).
        """,
    ),
    "the only request, without a server": (
        PROXY,
        figures(
            stats(known_rows=None, smallest_rows=0.0),
            recent=recent(sheds={"no_worker": 1}, estimate=None),
            work=work(0),
            not_ready_reason="no server is healthy: http://10.0.0.7:8000: not checked yet",
        ),
        """
        The gateway refused the only request. 1 request in the last 30 s: too few for rates and percentiles.
        Too few batches have succeeded to estimate how long one takes. No server is healthy:
        http://10.0.0.7:8000: not checked yet.
        """,
    ),
}  # fmt: skip
