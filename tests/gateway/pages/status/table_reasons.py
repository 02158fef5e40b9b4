"""Every reason for batch sizes and for refusals, in words."""

from __future__ import annotations

from tests.gateway.pages.status.staged import DIED, TOKENS, UNHEALTHY, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

TIGHT = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=14)
NONE = stats({"policy": "none"}, limit_rows=1)
BUSY = recent(batches=600, each=6, rate=200, took_s=0.08)

BATCH_SIZES: dict[str, tuple[Names, Figures, str]] = {
    "no batch": (SERVICE, figures(), "No batch ran in the last 30 s."),
    "few requests": (
        SERVICE,
        figures(recent=recent(batches=7)),
        "Too few requests to explain the batch size.",
    ),
    "streams": (
        SERVICE,
        figures(NONE, recent=recent(batches=30), streams=True),
        "The mean batch has 1 row: requests with streamed answers run alone.",
    ),
    "policy none": (
        SERVICE,
        figures(NONE, recent=recent(batches=30, rows=3)),
        "The mean batch has 3 rows: policy none runs each request alone.",
    ),
    "a cap of one": (
        SERVICE,
        figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
        "The mean batch has 1 row: the batch cap (mb_max_batch_size) is 1 row.",
    ),
    "a cap of one, in a proxy": (
        PROXY,
        figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
        "The mean batch has 1 row: the batch cap (--max-batch-size) is 1 row.",
    ),
    "full": (
        SERVICE,
        figures(stats({"max_batch_rows": 4}), recent=recent(batches=30, each=4, reason="full")),
        "The mean batch has 4 rows: most batches are full. Reason for release: the batch was full at 4 "
        "rows or 64 MiB.",
    ),
    "full, in a proxy": (
        PROXY,
        figures(stats({"max_batch_rows": 4}), recent=recent(batches=30, each=4, reason="full")),
        "The mean batch has 4 rows: most batches are full. Reason for release: the batch was full at 4 "
        "rows.",
    ),
    "full of units of cost": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192, "max_batch_bytes": 10_000_000}),
            recent=recent(batches=30, each=20, rows=392, releases={"full": 21, "not_worth_waiting": 9}),
            weighs=True,
        ),
        "The mean batch has 7,840 units of cost: most batches are full. Reasons for release: the batch "
        "was full at 8,192 units of cost or 9.537 MiB (70 %); waiting longer would not have paid off (30 %).",
    ),
    "closed loop": (
        SERVICE,
        figures(recent=recent(batches=30, each=3, rate=200, took_s=0.02)),
        "The mean batch has 3 rows: the gateway has about 4 requests at a time, queued or running. "
        "Reason for release: no worker was busy, and waiting would not "
        "have paid off.",
    ),
    "one client": (
        PROXY,
        figures(recent=recent(batches=30, rate=66, took_s=0.0152)),
        "The mean batch has 1 row: the gateway has about 1 request at a time, queued or running. "
        "Reason for release: no call was running, and waiting would not "
        "have paid off.",
    ),
    "an estimate that is not there yet": (
        SERVICE,
        figures(recent=recent(batches=4, each=6, reason="drain", estimate=None)),
        "The mean batch has 6 rows. Reason for release: the server was shutting down.",
    ),
    "thin traffic": (
        SERVICE,
        figures(recent=recent(batches=30, rate=20)),
        "The mean batch has 1 row: requests arrive 50 ms apart on average, and one alone takes about 12 "
        "ms, so requests rarely share a batch. Reason for release: no worker was busy, and waiting would "
        "not have paid off.",
    ),
    "the goal": (
        SERVICE,
        figures(recent=recent(batches=900, each=6, reason="deadline", estimate=TIGHT), goal_s=0.030),
        "The mean batch has 6 rows: a batch that meets the goal has at most 7 rows. Reason for release: "
        "its requests had waited as long as the goal allows.",
    ),
    "the goal and the longest hold of a proxy": (
        PROXY,
        figures(recent=recent(batches=900, each=6, reason="deadline", estimate=TIGHT), goal_s=0.030),
        "The mean batch has 6 rows: a batch that meets the goal has at most 7 rows. Reason for release: "
        "its requests had waited as long as the goal or --max-latency allows.",
    ),
    "the longest hold of a proxy": (
        PROXY,
        figures(
            recent=recent(batches=900, each=6, releases={"deadline": 880, "idle": 5}, took_s=0.08),
            goal_s=None,
        ),
        "The mean batch has 6.1 rows: that is what arrives while other batches run. Reasons for "
        "release: its requests had waited as long as --max-latency allows (more than 99 %); no call was "
        "running, and "
        "waiting would not have paid off (less than 1 %).",
    ),
    "a fixed window": (
        SERVICE,
        figures(
            stats({"policy": "fixed:20"}),
            recent=recent(batches=600, each=6, rate=200, reason="deadline", took_s=0.08),
        ),
        "The mean batch has 6 rows: that is what arrives while other batches run. Reason for release: "
        "its requests had waited as long as policy fixed:20 allows.",
    ),
    "busy": (
        SERVICE,
        figures(recent=BUSY),
        "The mean batch has 6 rows: that is what arrives while other batches run. Reason for release: "
        "no worker was busy, and waiting would not have paid off.",
    ),
}  # fmt: skip

REFUSALS: dict[str, tuple[Names, Figures, str]] = {
    "deadline": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"deadline": 40}, rate=900)),
        "The gateway refused 40 of 100 requests (40 %) with 503 (deadline): they would have missed the goal "
        "of 300 ms, or their clients' deadlines. 900 rows/s arrived; at full load, 1 worker answers about "
        "432 rows/s.",
    ),
    "deadline, of units of cost": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192}, known_rows=(12.0, 4096.0)),
            recent=recent(batches=600, each=5, sheds={"deadline": 210}, rate=20_400, estimate=TOKENS),
            weighs=True,
        ),
        "The gateway refused 210 of 3,210 requests (7 %) with 503 (deadline): they would have missed the "
        "goal of 300 ms, or their clients' deadlines. 20,400 units of cost/s arrived; at full load, 1 worker "
        "answers about 16,200 units of cost/s.",
    ),
    "deadline, of the only request": (
        PROXY,
        figures(recent=recent(sheds={"deadline": 1}), goal_s=None),
        "The gateway refused the only request with 503 (deadline): it would have missed its client's "
        "deadline.",
    ),
    "deadline, of the clients of a proxy": (
        PROXY,
        figures(recent=recent(batches=60, sheds={"deadline": 40}, rate=900), goal_s=None, work=work(2)),
        "The gateway refused 40 of 100 requests (40 %) with 503 (deadline): they would have missed their "
        "clients' deadlines. 900 rows/s arrived; at full load, 2 concurrent calls answer about 865 rows/s.",
    ),
    "deadline, in bursts": (
        SERVICE,
        figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=100)),
        "The gateway refused 80 of 400 requests (20 %) with 503 (deadline): they would have missed the goal "
        "of 300 ms, or their clients' deadlines. 100 rows/s arrived; at full load, 1 worker answers about "
        "432 rows/s. So the requests "
        "came in bursts.",
    ),
    "deadline, next to another API": (
        SERVICE,
        figures(
            recent=recent(batches=60, sheds={"deadline": 40}, rate=300),
            others_share=0.5,
            busiest_other="slow",
        ),
        "The gateway refused 40 of 100 requests (40 %) with 503 (deadline): they would have missed the goal "
        "of 300 ms, or their clients' deadlines. 300 rows/s arrived; at full load, 1 worker answers about "
        "432 rows/s. Other APIs took "
        "50 % of the workers' time.",
    ),
    "client_deadline": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"client_deadline": 40})),
        "The gateway refused 40 of 100 requests (40 %) with 504 (client_deadline): the time in "
        "X-Request-Timeout-Ms passed before they ran.",
    ),
    "queue_full": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"queue_full": 40})),
        "The gateway refused 40 of 100 requests (40 %) with 503 (queue_full): the queue had reached "
        "--max-queue-rows (20,000) or --max-queue-bytes (256 MiB).",
    ),
    "no_worker, for a while": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"no_worker": 40})),
        "The gateway refused 40 of 100 requests (40 %) with 503 (no_worker): no worker was ready. 1 worker "
        "is ready now.",
    ),
    "no_worker, for a while, in a proxy": (
        PROXY,
        figures(recent=recent(batches=60, sheds={"no_worker": 40}), work=work(2)),
        "The gateway refused 40 of 100 requests (40 %) with 503 (no_worker): no server was healthy. 2 "
        "concurrent calls are possible now.",
    ),
    "no_worker": (
        SERVICE,
        figures(recent=recent(sheds={"no_worker": 1}), work=work(0), not_ready_reason=DIED),
        "The gateway refused the only request with 503 (no_worker). No worker is ready: "
        "worker 0 was killed by SIGKILL.",
    ),
    "no_worker, in a proxy": (
        PROXY,
        figures(recent=recent(sheds={"no_worker": 8}), work=work(0), not_ready_reason=UNHEALTHY),
        "The gateway refused all 8 requests with 503 (no_worker). No server is "
        "healthy: http://10.0.0.7:8000: GET /v2/health/ready returned 503.",
    ),
    "draining": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"draining": 1}), draining=True),
        "The gateway refused 1 of 61 requests (2 %) with 503 (draining): the server is shutting down.",
    ),
    "no_room": (
        SERVICE,
        figures(recent=recent(batches=60, statuses={503: 40})),
        "The gateway refused 40 of 100 requests (40 %) with 503 (no_room): too many large request bodies "
        "were arriving at once.",
    ),
    "several": (
        SERVICE,
        figures(
            recent=recent(
                batches=10, sheds={"deadline": 180, "client_deadline": 1}, statuses={503: 20}, rate=900
            )
        ),
        "The gateway refused 201 of 211 requests (95 %). 90 % of them got 503 (deadline): they would have "
        "missed the goal of 300 ms, or their clients' deadlines. 900 rows/s arrived; at full load, 1 worker "
        "answers about 432 rows/s. 10 % of them got 503 (no_room): too many large request bodies were "
        "arriving at once. Less than 1 % of them got 504 (client_deadline): the "
        "time in X-Request-Timeout-Ms passed before it ran.",
    ),
}  # fmt: skip
