"""Cases of every advice. A key is a code, and what is special about the case."""

from __future__ import annotations

import math

from tests.gateway.pages.status.staged import DIED, FAILURE, UNHEALTHY, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.stats import ClassStats
from uncork_gateway.pages.status.figures import Figures

CAPPED = recent(batches=30, each=4, reason="full", rate=220, took_s=0.1)
FEW_AT_A_TIME = recent(batches=30, each=4, reason="full", rate=220, took_s=0.03)
FULL = recent(batches=30, each=4, reason="full", rate=100)
NOISY = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.6, earned_rows=64)
BY_ROWS = Estimate(intercept_s=0.0001, slope_s=0.002, spread=0.1, earned_rows=64)
ALMOST_BY_ROWS = Estimate(intercept_s=0.0003, slope_s=0.002, spread=0.1, earned_rows=64)
CAP_4 = {"max_batch_rows": 4}
NONE = stats({"policy": "none"}, limit_rows=1)
MIXED = recent(batches=30, each=3, rows=8, took_s=1.0, rate=900)
HARD = recent(batches=30, each=32, took_s=1.0, rate=900)

CASES: dict[str, Figures] = {
    "no_worker": figures(work=work(0), not_ready_reason=DIED),
    "no_worker, proxy": figures(work=work(0), not_ready_reason=UNHEALTHY),
    "errors": figures(recent=recent(batches=7, errors={500: 2, 504: 1}), failure=FAILURE),
    "errors, without an exception": figures(recent=recent(errors={503: 2})),
    "errors, proxy": figures(recent=recent(batches=7, errors={500: 3})),
    "errors, proxy, slow server": figures(recent=recent(batches=7, errors={504: 3})),
    "memory_limit": figures(stats(fits=28.0)),
    "memory_limit, of cost": figures(stats({"max_batch_rows": 4096}, fits=900.5), weighs=True),
    "goal_out_of_reach": figures(stats(smallest_rows=200.0), recent=recent(batches=3, ran_s=0.41)),
    "goal_out_of_reach, proxy": figures(recent=recent(batches=3), goal_s=0.0105),
    "raise_cap": figures(stats(CAP_4), recent=CAPPED),
    "raise_cap, proxy, with few requests at a time": figures(stats(CAP_4), recent=FEW_AT_A_TIME, goal_s=None),
    "raise_cap, which counts padding": figures(
        stats(CAP_4, padding=Padding("longest", 0.5)),
        recent=recent(batches=30, each=2, reason="full", rate=140, took_s=0.1),
    ),
    "raise_batch_bytes": figures(recent=FULL),
    "raise_goal": figures(recent=recent(batches=30, each=8, took_s=0.04, rate=400), goal_s=0.030),
    "bulk_without_room": figures(
        stats({"goal_s": 0.02, "bulk_goal_s": math.inf}, bulk=ClassStats(3, 30.0, 0, 2.0)),
        recent=recent(batches=30, rate=10),
    ),
    "policy_none": figures(NONE),
    "split_requests": figures(stats(padding=Padding("longest", 0.62)), recent=MIXED, weighs=True),
    "add_workers, late": figures(recent=HARD),
    "add_workers, late, proxy": figures(recent=HARD, work=work(2)),
    "add_workers, refused": figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=900)),
    "add_workers, refused, bursts": figures(
        recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=100)
    ),
    "add_workers, no room": figures(
        recent=recent(batches=10, each=20, rate=300), others_share=0.5, busiest_other="b"
    ),
    "add_workers, waiting": figures(
        NONE, recent=recent(batches=600, queued_s=0.575, took_s=0.59, rate=70), goal_s=1.0
    ),
    "raise_queue": figures(recent=recent(batches=900, sheds={"queue_full": 2}, rate=50)),
    "add_workers, reserved": figures(
        stats({"workers": 1}, workers=1),
        recent=recent(batches=600, each=8, sheds={"deadline": 100}, rate=900),
    ),
    "long_neighbor": figures(
        recent=recent(batches=30, queued_s=0.5, took_s=0.6),
        others_share=0.9,
        busiest_other="slow",
        longest_other=("slow", 2.0),
    ),
    "long_neighbor, refused": figures(
        recent=recent(batches=30, sheds={"deadline": 10}),
        work=work(workers=4),
        longest_other=("slow", 0.295),
    ),
    "long_neighbor, proxy": figures(recent=recent(batches=30, took_s=0.6), longest_other=("slow", 2.0)),
    "shared_workers": figures(
        recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"
    ),
    "shared_workers, proxy": figures(
        recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"
    ),
    "client_deadline": figures(recent=recent(batches=30, sheds={"client_deadline": 12})),
    "client_deadline, of one": figures(recent=recent(batches=3, sheds={"client_deadline": 1})),
    "fixed_window": figures(stats({"policy": "fixed:20"}), recent=recent(batches=30, queued_s=0.02)),
    "slope_dominated": figures(recent=recent(batches=30, each=2, rate=100, estimate=BY_ROWS)),
    "slope_dominated, with a small gain, of units of cost": figures(
        recent=recent(batches=30, each=2, rate=100, estimate=ALMOST_BY_ROWS), weighs=True
    ),
    "give_cost": figures(
        stats(padding=Padding("longest_bytes", 0.3)), recent=recent(batches=30, estimate=NOISY)
    ),
    "noisy": figures(recent=recent(batches=30, estimate=NOISY)),
    "noisy, despite a cost": figures(recent=recent(batches=30, estimate=NOISY), weighs=True),
    "noisy, proxy": figures(recent=recent(batches=30, estimate=NOISY), goal_s=None),
    "thin_traffic": figures(recent=recent(batches=30, rate=20)),
}
UNHURRIED = recent(batches=30, each=3, rows=8, took_s=1.0)
HALF = Padding("longest", 0.5)
# What only looks wrong, or is another fault than it looks.
LOOKS: dict[str, Figures] = {
    "idle": figures(),
    "busy": figures(recent=recent(batches=30, each=6, rate=200)),
    "few full batches": figures(stats(CAP_4), recent=recent(batches=4, each=4, reason="full", rate=900)),
    "a cap that costs nothing": figures(stats(CAP_4), recent=FULL._replace(estimate=BY_ROWS)),
    "a cap that is as large as the goal allows": figures(stats(CAP_4), recent=FULL, goal_s=0.021),
    "a queue that is full for want of workers": figures(
        recent=recent(batches=90, sheds={"queue_full": 9}, rate=900)
    ),
    "a stream, which cannot be merged": figures(stats({"policy": "none"}, limit_rows=1), streams=True),
    # A cost is advised instead of a search for noise where it helps; a proxy has no setting for it.
    **{
        f"noise, {case}": figures(
            stats(padding=padding), recent=recent(batches=30, estimate=NOISY), weighs=weighs
        )
        for case, padding, weighs in (
            ("of bytes", Padding("bytes", 0.2), False),
            ("of the longest", Padding("longest_bytes", 0.2), False),
            ("despite a cost", Padding("longest", 0.2), True),
            ("despite a cost, of bytes", Padding("longest_bytes", 0.2), True),
            ("of a proxy", Padding("longest_bytes", 0.2), False),
        )
    },
    "time by rows": figures(recent=UNHURRIED._replace(estimate=BY_ROWS), weighs=True),
    "time by rows, half of it padding": figures(
        stats(padding=HALF), recent=UNHURRIED._replace(estimate=BY_ROWS), weighs=True
    ),
    # Of a cap of 32 that counts padding, 9 rows are more than half of what fits.
    "batches full of bytes": figures(recent=recent(batches=30, each=9, reason="full", rate=100)),
    "batches full of padding": figures(
        stats(padding=HALF), recent=recent(batches=30, each=9, reason="full", rate=100)
    ),
    # Uncork limits the padding between requests; inside a request it cannot.
    **{
        f"padding, {case}": figures(stats(padding=padding), recent=window, weighs=True)
        for case, padding, window in (
            ("mixed", HALF, UNHURRIED),
            ("unknown", None, UNHURRIED),
            ("of bytes", Padding("longest_bytes", 0.5), UNHURRIED),
            ("little", Padding("longest", 0.49), UNHURRIED),
            ("in time", HALF, recent(batches=30, each=3, rows=8, rate=10)),
            ("of requests of one row", HALF, recent(batches=30, each=24, took_s=1.0)),
            ("less than the fixed part", HALF, recent(batches=30, each=1, rows=8, took_s=1.0)),
            ("without an estimate", HALF, UNHURRIED._replace(estimate=None)),
        )
    },
}
