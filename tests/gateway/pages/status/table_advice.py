"""Every advice and its figures. A key is a code, and what is special about the case."""

from __future__ import annotations

import math
from typing import Any

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

CASES: dict[str, tuple[Figures, dict[str, Any]]] = {
    "no_worker": (figures(work=work(0), not_ready_reason=DIED), {}),
    "no_worker, proxy": (figures(work=work(0), not_ready_reason=UNHEALTHY), {}),
    "errors": (
        figures(recent=recent(batches=7, errors={500: 2, 504: 1}), failure=FAILURE),
        {"failed": 2, "status": 500, "error": "IndexError", "error_id": "77ab"},
    ),
    "errors, without an exception": (figures(recent=recent(errors={503: 2})), {"failed": 2, "status": 503}),
    "errors, proxy": (figures(recent=recent(batches=7, errors={500: 3})), {"failed": 3, "status": 500}),
    "errors, proxy, slow server": (
        figures(recent=recent(batches=7, errors={504: 3})),
        {"failed": 3, "status": 504},
    ),
    "memory_limit": (
        figures(stats(fits=28.0)),
        {"fits": 28.0, "unit": "row", "part": "worker", "setting": "mb_max_batch_size", "to": 28},
    ),
    "memory_limit, of cost": (
        figures(stats({"max_batch_rows": 4096}, fits=900.5), weighs=True),
        {"fits": 900.5, "unit": "unit of cost", "part": "worker", "setting": "mb_max_batch_size", "to": 900},
    ),
    "goal_out_of_reach": (
        figures(stats(smallest_rows=200.0), recent=recent(batches=3, ran_s=0.41)),
        {"rows": 200.0, "needed_s": 0.41, "goal_s": 0.3, "setting": "mb_max_latency"},
    ),
    "goal_out_of_reach, proxy": (
        figures(recent=recent(batches=3), goal_s=0.0105),
        {"rows": 1.0, "needed_s": 0.012, "goal_s": 0.0105, "setting": "--goal-ms"},
    ),
    "raise_cap": (
        figures(stats(CAP_4), recent=CAPPED),
        {"share": 1.0, "cap": 4, "setting": "mb_max_batch_size", "to": 8},
    ),
    "raise_cap, proxy, with few requests at a time": (
        figures(stats(CAP_4), recent=FEW_AT_A_TIME, goal_s=None),
        {"share": 1.0, "cap": 4, "setting": "--max-batch-size", "to": 6},
    ),
    "raise_cap, which counts padding": (
        figures(
            stats(CAP_4, padding=Padding("longest", 0.5)),
            recent=recent(batches=30, each=2, reason="full", rate=140, took_s=0.1),
        ),
        {"share": 1.0, "cap": 4, "setting": "mb_max_batch_size", "to": 8},
    ),
    "raise_batch_bytes": (
        figures(recent=FULL),
        {"share": 1.0, "rows": 4.0, "cap": 32, "setting": "mb_max_batch_bytes", "now": 67108864},
    ),
    "raise_goal": (
        figures(recent=recent(batches=30, each=8, took_s=0.04, rate=400), goal_s=0.030),
        {"goal_s": 0.03, "rows": 1, "setting": "mb_max_latency"},
    ),
    "bulk_without_room": (
        figures(
            stats({"goal_s": 0.02, "bulk_goal_s": math.inf}, bulk=ClassStats(3, 30.0, 0, 2.0)),
            recent=recent(batches=30, rate=10),
        ),
        {"goal_s": 0.02, "fixed_s": 0.01, "setting": "mb_max_latency", "to_s": 0.036},
    ),
    "policy_none": (figures(NONE), {}),
    "split_requests": (
        figures(stats(padding=Padding("longest", 0.62)), recent=MIXED, weighs=True),
        {"share": 0.62, "rows": 8.0},
    ),
    "add_workers, late": (
        figures(recent=HARD),
        {"rate": 900.0, "capacity": 432.43243, "more": 2, "option": "--workers"},
    ),
    "add_workers, late, proxy": (
        figures(recent=HARD, work=work(2)),
        {"rate": 900.0, "capacity": 864.86486, "more": 1, "option": "--concurrency"},
    ),
    "add_workers, refused": (
        figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=900)),
        {"rate": 900.0, "capacity": 432.43243, "more": 2, "option": "--workers"},
    ),
    "add_workers, refused, bursts": (
        figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=100)),
        {"rate": 100.0, "capacity": 432.43243, "more": 1, "option": "--workers", "refused": 80},
    ),
    "add_workers, no room": (
        figures(recent=recent(batches=10, each=20, rate=300), others_share=0.5, busiest_other="b"),
        {"rate": 300.0, "capacity": 432.43243, "more": 1, "option": "--workers", "others": 0.5},
    ),
    "add_workers, waiting": (
        figures(NONE, recent=recent(batches=600, queued_s=0.575, took_s=0.59, rate=70), goal_s=1.0),
        {"rate": 70.0, "capacity": 83.333333, "more": 1, "queue_s": 0.575, "run_s": 0.012},
    ),
    "raise_queue": (
        figures(recent=recent(batches=900, sheds={"queue_full": 2}, rate=50)),
        {"refused": 2, "rate": 50.0, "capacity": 432.43243, "queue_rows": 20000, "queue_bytes": 268435456},
    ),
    "add_workers, reserved": (
        figures(
            stats({"workers": 1}, workers=1),
            recent=recent(batches=600, each=8, sheds={"deadline": 100}, rate=900),
        ),
        {"rate": 900.0, "option": "workers of this API"},
    ),
    "long_neighbor": (
        figures(
            recent=recent(batches=30, queued_s=0.5, took_s=0.6),
            others_share=0.9,
            busiest_other="slow",
            longest_other=("slow", 2.0),
        ),
        {"other": "slow", "other_s": 2.0, "goal_s": 0.3, "option": "--workers", "to": 2},
    ),
    "long_neighbor, refused": (
        figures(
            recent=recent(batches=30, sheds={"deadline": 10}),
            work=work(workers=4),
            longest_other=("slow", 0.295),
        ),
        {"other_s": 0.295, "to": 4},
    ),
    "long_neighbor, proxy": (
        figures(recent=recent(batches=30, took_s=0.6), longest_other=("slow", 2.0)),
        {"other": "slow", "other_s": 2.0},
    ),
    "shared_workers": (
        figures(recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"),
        {"queue_s": 0.2, "run_s": 0.012, "others": 0.9, "other": "slow", "option": "--workers"},
    ),
    "shared_workers, proxy": (
        figures(recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"),
        {"queue_s": 0.2, "run_s": 0.012, "others": 0.9, "other": "slow", "option": "--concurrency"},
    ),
    "client_deadline": (figures(recent=recent(batches=30, sheds={"client_deadline": 12})), {"passed": 12}),
    "client_deadline, of one": (
        figures(recent=recent(batches=3, sheds={"client_deadline": 1})),
        {"passed": 1},
    ),
    "fixed_window": (
        figures(stats({"policy": "fixed:20"}), recent=recent(batches=30, queued_s=0.02)),
        {"policy": "fixed:20", "queue_s": 0.02, "requests": 1.0},
    ),
    "slope_dominated": (
        figures(recent=recent(batches=30, each=2, rate=100, estimate=BY_ROWS)),
        {"rows": 32, "gain": 1.0483619},
    ),
    "slope_dominated, with a small gain, of units of cost": (
        figures(recent=recent(batches=30, each=2, rate=100, estimate=ALMOST_BY_ROWS), weighs=True),
        {"rows": 32, "gain": 1.1446345},
    ),
    "give_cost": (
        figures(stats(padding=Padding("longest_bytes", 0.3)), recent=recent(batches=30, estimate=NOISY)),
        {"cost": "bytes", "setting": "mb_max_batch_size"},
    ),
    "noisy": (figures(recent=recent(batches=30, estimate=NOISY)), {"spread": 0.6}),
    "noisy, despite a cost": (
        figures(recent=recent(batches=30, estimate=NOISY), weighs=True),
        {"spread": 0.6},
    ),
    "noisy, proxy": (figures(recent=recent(batches=30, estimate=NOISY), goal_s=None), {"spread": 0.6}),
    "thin_traffic": (figures(recent=recent(batches=30, rate=20)), {"gap_s": 0.05, "alone_s": 0.012}),
}
