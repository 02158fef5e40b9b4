"""Every reason for batch sizes and for refusals, in words."""

from __future__ import annotations

from tests.gateway.pages.status.staged import figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names

TIGHT = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=14)
NONE = stats({"policy": "none"}, limit_rows=1)
BUSY = recent(batches=600, each=6, rate=200, took_s=0.08)

BATCH_SIZES: dict[str, tuple[Names, Figures]] = {
    "no batch": (SERVICE, figures()),
    "few requests": (
        SERVICE,
        figures(recent=recent(batches=7)),
    ),
    "streams": (
        SERVICE,
        figures(NONE, recent=recent(batches=30), streams=True),
    ),
    "policy none": (
        SERVICE,
        figures(NONE, recent=recent(batches=30, rows=3)),
    ),
    "a cap of one": (
        SERVICE,
        figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
    ),
    "a cap of one, in a proxy": (
        PROXY,
        figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
    ),
    "full": (
        SERVICE,
        figures(stats({"max_batch_rows": 4}), recent=recent(batches=30, each=4, reason="full")),
    ),
    "full of units of cost": (
        SERVICE,
        figures(
            stats({"max_batch_rows": 8192, "max_batch_bytes": 10_000_000}),
            recent=recent(batches=30, each=20, rows=392, releases={"full": 21, "not_worth_waiting": 9}),
            weighs=True,
        ),
    ),
    "closed loop": (
        SERVICE,
        figures(recent=recent(batches=30, each=3, rate=200, took_s=0.02)),
    ),
    "an estimate that is not there yet": (
        SERVICE,
        figures(recent=recent(batches=4, each=6, reason="drain", estimate=None)),
    ),
    "thin traffic": (
        SERVICE,
        figures(recent=recent(batches=30, rate=20)),
    ),
    "the goal": (
        SERVICE,
        figures(recent=recent(batches=900, each=6, reason="deadline", estimate=TIGHT), goal_s=0.030),
    ),
    "busy": (
        SERVICE,
        figures(recent=BUSY),
    ),
}  # fmt: skip

REFUSALS: dict[str, tuple[Names, Figures]] = {
    "deadline": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"deadline": 40}, rate=900)),
    ),
    "deadline, of the only request": (
        PROXY,
        figures(recent=recent(sheds={"deadline": 1}), goal_s=None),
    ),
    "client_deadline": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"client_deadline": 40})),
    ),
    "queue_full": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"queue_full": 40})),
    ),
    "too_many_groups": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"too_many_groups": 40})),
    ),
    "displaced": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"displaced": 40})),
    ),
    "no_worker, for a while": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"no_worker": 40})),
    ),
    "no_worker, for a while, in a proxy": (
        PROXY,
        figures(recent=recent(batches=60, sheds={"no_worker": 40}), work=work(2)),
    ),
    "draining": (
        SERVICE,
        figures(recent=recent(batches=60, sheds={"draining": 1}), draining=True),
    ),
    "no_room": (
        SERVICE,
        figures(recent=recent(batches=60, statuses={503: 40})),
    ),
    "several": (
        SERVICE,
        figures(
            recent=recent(
                batches=10, sheds={"deadline": 180, "client_deadline": 1}, statuses={503: 20}, rate=900
            )
        ),
    ),
}  # fmt: skip
