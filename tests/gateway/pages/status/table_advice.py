"""Every advice, in words. A key is a code, and what is special about the case."""

from __future__ import annotations

from tests.gateway.pages.status.staged import DIED, FAILURE, UNHEALTHY, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_dispatcher.learning.measures import Padding
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

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

CASES: dict[str, tuple[Names, Figures, str]] = {
    "no_worker": (
        SERVICE,
        figures(work=work(0), not_ready_reason=DIED),
        "No worker is ready: worker 0 was killed by SIGKILL. No request can be answered until a worker is "
        "ready. The log has the details.",
    ),
    "no_worker, proxy": (
        PROXY,
        figures(work=work(0), not_ready_reason=UNHEALTHY),
        "No server is healthy: http://10.0.0.7:8000: GET /v2/health/ready returned 503. No request can be "
        "answered until a server is healthy. Check the model server.",
    ),
    "errors": (
        SERVICE,
        figures(recent=recent(batches=7, errors={500: 2, 504: 1}), failure=FAILURE),
        "3 of 10 requests (30 %) failed: 2 because the handler raised IndexError (service.py:12) and 1 "
        "because the batch exceeded its timeout. Fix the handler: the log has the traceback under error id "
        "77ab. Find out why batches take so long, or raise the API's timeout.",
    ),
    "errors, without an exception": (
        SERVICE,
        figures(recent=recent(errors={503: 2})),
        "Both requests failed: the handler returned 503. Look for the cause in the log.",
    ),
    "errors, proxy": (
        PROXY,
        figures(recent=recent(batches=7, errors={500: 3})),
        "3 of 10 requests (30 %) failed: the model server returned 500. Look for the cause in the model "
        "server's log.",
    ),
    "errors, proxy, slow server": (
        PROXY,
        figures(recent=recent(batches=7, errors={504: 3})),
        "3 of 10 requests (30 %) failed: the batch exceeded its timeout. Find out why batches take so long, "
        "or raise --timeout.",
    ),
    "goal_out_of_reach": (
        SERVICE,
        figures(stats(smallest_rows=200.0), recent=recent(batches=3, ran_s=0.41)),
        "Even alone, a request of 200 rows takes about 410 ms, longer than the goal (mb_max_latency, 300 "
        "ms). Raise the goal, or make the model faster.",
    ),
    "goal_out_of_reach, proxy": (
        PROXY,
        figures(recent=recent(batches=3), goal_s=0.0105),
        "Even alone, a request of 1 row takes about 12 ms, longer than the goal (--goal-ms, 10.5 ms). Raise "
        "the goal, or make the model faster.",
    ),
    "raise_cap": (
        SERVICE,
        figures(stats(CAP_4), recent=CAPPED),
        "100 % of the batches reach the cap of 4 rows. Larger batches would answer more: raise "
        "mb_max_batch_size, for example to 8.",
    ),
    "raise_cap, proxy, with few requests at a time": (
        PROXY,
        figures(stats(CAP_4), recent=FEW_AT_A_TIME, goal_s=None),
        "100 % of the batches reach the cap of 4 rows. Larger batches would answer more: raise "
        "--max-batch-size, for example to 6.",
    ),
    "raise_cap, which counts padding": (
        SERVICE,
        figures(
            stats(CAP_4, padding=Padding("longest", 0.5)),
            recent=recent(batches=30, each=2, reason="full", rate=140, took_s=0.1),
        ),
        "100 % of the batches reach the cap of 4 rows including padding. Larger batches would answer more: "
        "raise mb_max_batch_size, for example to 8.",
    ),
    "raise_batch_bytes": (
        SERVICE,
        figures(recent=FULL),
        "100 % of the batches are full at 4 rows of 32, because of their bytes. Raise mb_max_batch_bytes "
        "(now 64 MiB).",
    ),
    "raise_goal": (
        SERVICE,
        figures(recent=recent(batches=30, each=8, took_s=0.04, rate=400), goal_s=0.030),
        "To meet the goal (mb_max_latency, 30 ms) behind another batch of the same size, a batch has at most "
        "1 row. Larger batches would answer more: raise the goal if your clients can wait longer.",
    ),
    "policy_none": (
        SERVICE,
        figures(NONE),
        "Policy none runs each request alone. Set policy cork to run requests in batches.",
    ),
    "split_requests": (
        SERVICE,
        figures(stats(padding=Padding("longest", 0.62)), recent=MIXED, weighs=True),
        "62 % of the work is padding, because requests of about 8 rows mix different lengths. Have clients "
        "send rows of similar length together, or one row per request.",
    ),
    "add_workers, late": (
        SERVICE,
        figures(recent=HARD),
        "The p99 latency was 998 ms, 3.3 times the goal (mb_max_latency, 300 ms). 900 rows/s arrived; at "
        "full load, 1 worker answers about 432 rows/s. Add 2 workers (--workers).",
    ),
    "add_workers, late, proxy": (
        PROXY,
        figures(recent=HARD, work=work(2)),
        "The p99 latency was 998 ms, 3.3 times the goal (--goal-ms, 300 ms). 900 rows/s arrived; at full "
        "load, 2 concurrent calls answer about 865 rows/s. Add 1 concurrent call: raise --concurrency, "
        "or add a server.",
    ),
    "add_workers, refused": (
        SERVICE,
        figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=900)),
        "The gateway refused 80 of 400 requests (20 %). 900 rows/s arrived; at full load, 1 worker answers "
        "about 432 rows/s. Add 2 workers (--workers).",
    ),
    "add_workers, refused, bursts": (
        SERVICE,
        figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=100)),
        "The gateway refused 80 of 400 requests (20 %). 100 rows/s arrived; at full load, 1 worker answers "
        "about 432 rows/s. So the requests came in bursts. Add 1 worker (--workers).",
    ),
    "add_workers, no room": (
        SERVICE,
        figures(recent=recent(batches=10, each=20, rate=300), others_share=0.5, busiest_other="b"),
        "300 rows/s arrived; at full load, 1 worker answers about 432 rows/s. Other APIs took 50 % of the "
        "workers' time. That leaves no room for bursts. Add 1 worker (--workers).",
    ),
    "add_workers, waiting": (
        SERVICE,
        figures(NONE, recent=recent(batches=600, queued_s=0.575, took_s=0.59, rate=70), goal_s=1.0),
        "On average, a request was queued for 575 ms and ran for 12 ms. 70 rows/s arrived; at full load, 1 "
        "worker answers about 83 rows/s. Add 1 worker (--workers).",
    ),
    "raise_queue": (
        SERVICE,
        figures(recent=recent(batches=900, sheds={"queue_full": 2}, rate=50)),
        "The queue was full for 2 requests. 50 rows/s arrived; at full load, 1 worker answers about 432 "
        "rows/s. For such bursts, raise --max-queue-rows (20,000) or --max-queue-bytes (256 MiB).",
    ),
    "shared_workers": (
        SERVICE,
        figures(recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"),
        "On average, a request was queued for 200 ms and ran for 12 ms. Other APIs took 90 % of the workers' "
        "time; slow took the most. Give slow a gateway of its own, or add workers (--workers).",
    ),
    "shared_workers, proxy": (
        PROXY,
        figures(recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"),
        "On average, a request was queued for 200 ms and ran for 12 ms. Other models took 90 % of the time "
        "of the concurrent calls; slow took the most. Give slow a gateway of its own, raise --concurrency, "
        "or add a server.",
    ),
    "client_deadline": (
        SERVICE,
        figures(recent=recent(batches=30, sheds={"client_deadline": 12})),
        "The time in X-Request-Timeout-Ms passed for 12 requests before they ran. The p50 latency was 12 ms. "
        "Have the clients allow more time.",
    ),
    "client_deadline, of one": (
        SERVICE,
        figures(recent=recent(batches=3, sheds={"client_deadline": 1})),
        "The time in X-Request-Timeout-Ms passed for 1 request before it ran. Have the clients allow more "
        "time.",
    ),
    "fixed_window": (
        SERVICE,
        figures(stats({"policy": "fixed:20"}), recent=recent(batches=30, queued_s=0.02)),
        "Under policy fixed:20, a request was queued for 20 ms on average, but a batch has only 1 request. "
        "Set policy cork, which waits only when that pays off.",
    ),
    "slope_dominated": (
        SERVICE,
        figures(recent=recent(batches=30, each=2, rate=100, estimate=BY_ROWS)),
        "Each row takes almost as long as the first, so batching gains hardly anything. Check whether the "
        "handler loops over rows.",
    ),
    "slope_dominated, with a small gain, of units of cost": (
        SERVICE,
        figures(recent=recent(batches=30, each=2, rate=100, estimate=ALMOST_BY_ROWS), weighs=True),
        "Each unit of cost takes almost as long as the first, so batching gains at most 14 %. Check whether "
        "the handler loops over rows.",
    ),
    "give_cost": (
        SERVICE,
        figures(stats(padding=Padding("longest_bytes", 0.3)), recent=recent(batches=30, estimate=NOISY)),
        "Batch times depend on the bytes of the request bodies, but limits count rows. Set "
        'cost="bytes", or the name of a field, and adapt mb_max_batch_size, which then limits this cost. '
        "Estimates are also accurate sooner after a start.",
    ),
    "noisy": (
        SERVICE,
        figures(recent=recent(batches=30, estimate=NOISY)),
        "Batch times vary by ±60 % around the estimate. Look for other load on this machine. If some rows "
        "take far longer than others, define their cost.",
    ),
    "noisy, despite a cost": (
        SERVICE,
        figures(recent=recent(batches=30, estimate=NOISY), weighs=True),
        "Batch times vary by ±60 % around the estimate. Look for other load on this machine.",
    ),
    "noisy, proxy": (
        PROXY,
        figures(recent=recent(batches=30, estimate=NOISY), goal_s=None),
        "Batch times vary by ±60 % around the estimate. Look for other load on the model server's machine, "
        "or for rows that take far longer than others.",
    ),
    "thin_traffic": (
        SERVICE,
        figures(recent=recent(batches=30, rate=20)),
        "Small batches are right at this rate: requests arrive 50 ms apart on average, and one alone takes "
        "about 12 ms.",
    ),
}  # fmt: skip
