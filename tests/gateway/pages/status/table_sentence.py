"""Every sentence about the recent past of an API, with the numbers of real services."""

from __future__ import annotations

import math

from tests.gateway.pages.status.staged import FAILURE, TOKENS, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_gateway.pages.status.figures import Figures

FOREST = Estimate(intercept_s=0.0177, slope_s=0.00008, spread=0.12, earned_rows=32)
EMBEDDING = Estimate(intercept_s=0.0042, slope_s=0.0031, spread=0.07, earned_rows=190)
ONE_ROW = Estimate(intercept_s=0.0471, slope_s=0.0047, spread=0.24, earned_rows=2)
VARYING = Estimate(intercept_s=0.04, slope_s=0.0002, spread=0.51, earned_rows=400)
SLOW_SERVER = Estimate(intercept_s=11.2, slope_s=0.15, spread=0.004, earned_rows=16)
NO_WEIGHTS = "no worker is ready: worker 0 failed in setup: OSError: no weights (7 times in a row)"
LARGE = {"max_batch_rows": 1000}
CAP_4 = {"max_batch_rows": 4}
NONE = stats({"policy": "none"}, limit_rows=1)
FULL = recent(batches=30, each=4, reason="full", rate=300, took_s=0.1)

CASES: dict[str, Figures] = {
    "idle": figures(),
    "requests that were identical": figures(recent=recent(batches=300, statuses={200: 700}, coalesced=700)),
    "few requests that were identical": figures(recent=recent(batches=300, statuses={200: 3}, coalesced=3)),
    "the first request": figures(
        stats(LARGE, known_rows=(1.0, 1.0)), recent=recent(batches=1, estimate=None)
    ),
    "the first second": figures(
        stats(LARGE, known_rows=(30.0, 32.0)), recent=recent(batches=30, each=31, seconds=0.4)
    ),
    "a forest, little to do": figures(
        stats(LARGE, known_rows=(1.0, 16.0)),
        recent=recent(batches=420, ran_s=0.0182, took_s=0.0193, queued_s=0.0004, rate=14.1, estimate=FOREST),
    ),
    "busy": figures(
        recent=recent(batches=1000, each=6, reason="not_worth_waiting", ran_s=0.022, took_s=0.025)
    ),
    "busy, with times that vary": figures(
        stats(LARGE, known_rows=(1.0, 200.0), slope_error_s=0.001),
        recent=recent(batches=1000, each=83, ran_s=0.057, estimate=VARYING),
        work=work(2),
    ),
    "late, of one size": figures(
        stats(LARGE, known_rows=(1.0, 1.0)),
        recent=recent(batches=30, rate=1, ran_s=0.06, took_s=0.35, queued_s=0.28, estimate=ONE_ROW),
    ),
    "an embedding, overloaded": figures(
        stats(LARGE, known_rows=(1.0, 95.0)),
        recent=recent(
            batches=104,
            each=90,
            ran_s=0.283,
            took_s=0.31,
            queued_s=0.14,
            rate=612,
            estimate=EMBEDDING,
            sheds={"deadline": 9000},
        ),
    ),
    "a service next to a busy one": figures(
        recent=recent(batches=1500, each=6), others_share=0.4, busiest_other="slow"
    ),
    "a model of a proxy next to a busy one": figures(
        recent=recent(batches=1500, each=6), others_share=0.4, busiest_other="slow", goal_s=None
    ),
    "a goal that is too short": figures(recent=recent(batches=30, each=8, rate=400), goal_s=0.030),
    "a goal out of reach": figures(
        stats(smallest_rows=200.0),
        recent=recent(batches=30, rows=200, ran_s=0.41, took_s=0.42, queued_s=0.0002),
    ),
    "a low cap": figures(stats(CAP_4), recent=recent(batches=2250, each=4, reason="full", took_s=0.1)),
    "a cap of one": figures(
        stats({"max_batch_rows": 1}, known_rows=(1.0, 1.0)),
        recent=recent(batches=60, rate=2, estimate=ONE_ROW),
        work=work(2),
    ),
    "every answer a 500": figures(
        stats(known_rows=None, smallest_rows=0.0),
        recent=recent(errors={500: 213}, rate=7.1, estimate=None),
        failure=FAILURE,
    ),
    "the only request timed out": figures(recent=recent(errors={504: 1}, seconds=0.8)),
    "some errors": figures(
        recent=recent(batches=300, each=4, errors={500: 45, 502: 2}, rate=42), failure=FAILURE
    ),
    "wrong requests": figures(recent=recent(batches=300, statuses={422: 290, 499: 10})),
    "rows that differ": figures(
        stats({"max_batch_rows": 8192}, known_rows=(12.0, 4096.0)),
        recent=recent(batches=600, each=5, rows=84, rate=8400, ran_s=0.031, queued_s=0.011, estimate=TOKENS),
        weighs=True,
    ),
    "a low cap that counts padding": figures(
        stats(CAP_4, padding=Padding("longest", 0.5)),
        recent=recent(batches=60, each=2, reason="full", rate=140, took_s=0.1),
    ),
    "a proxy before a slow server": figures(
        stats(known_rows=(1.0, 8.0)),
        recent=recent(batches=60, rate=2, ran_s=11.3, took_s=14, queued_s=2.7, estimate=SLOW_SERVER),
        work=work(8),
        goal_s=None,
    ),
    "a proxy whose server fails": figures(
        stats(known_rows=None, smallest_rows=0.0),
        recent=recent(errors={500: 36, 502: 3, 504: 1}, sheds={"no_worker": 3}, rate=2, estimate=None),
        work=work(2),
        goal_s=None,
    ),
    "no worker": figures(
        recent=recent(batches=20, sheds={"no_worker": 44}, rate=3), work=work(0), not_ready_reason=NO_WEIGHTS
    ),
    "the only request, in a proxy without a server": figures(
        stats(known_rows=None, smallest_rows=0.0),
        recent=recent(sheds={"no_worker": 1}, estimate=None),
        work=work(0),
        not_ready_reason="no server is healthy: http://10.0.0.7:8000: not checked yet",
    ),
    "a low cap, with batches of one size": figures(stats(CAP_4, slope_error_s=math.inf), recent=FULL),
    "a low cap, with one request at a time": figures(
        stats(CAP_4), recent=recent(batches=30, rows=4, reason="full", rate=220, took_s=0.018)
    ),
    "a low cap, next to a busy service": figures(
        stats(CAP_4), recent=FULL, others_share=0.6, busiest_other="slow"
    ),
    "a low cap, and requests that wait for a busy service": figures(
        stats(CAP_4),
        recent=recent(batches=30, each=4, reason="full", rate=300, took_s=0.1, queued_s=0.08),
        others_share=0.6,
        busiest_other="slow",
    ),
    "a low cap at a low rate": figures(
        stats(CAP_4), recent=recent(batches=30, each=4, reason="full", rate=90, took_s=0.4)
    ),
    "a full cap at full load": figures(recent=recent(batches=30, each=32, reason="full", rate=700)),
    "policy none at a low rate": figures(NONE, recent=recent(batches=30, rate=60)),
    "policy none at full load": figures(NONE, recent=recent(batches=30, rate=83)),
    "policy none after a burst": figures(NONE, recent=recent(batches=30, queued_s=0.575, rate=19)),
    "a policy that holds": figures(recent=recent(batches=30, queued_s=0.575, rate=19)),
}
