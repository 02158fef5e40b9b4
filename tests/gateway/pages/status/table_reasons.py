"""Every reason for batch sizes and for refusals, in words."""

from __future__ import annotations

from tests.gateway.pages.status.staged import figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.figures import Figures

TIGHT = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=14)
NONE = stats({"policy": "none"}, limit_rows=1)
BUSY = recent(batches=600, each=6, rate=200, took_s=0.08)

BATCH_SIZES: dict[str, Figures] = {
    "no batch": figures(),
    "few requests": figures(recent=recent(batches=7)),
    "streams": figures(NONE, recent=recent(batches=30), streams=True),
    "policy none": figures(NONE, recent=recent(batches=30, rows=3)),
    "a cap of one": figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
    "a cap of one, in a proxy": figures(stats({"max_batch_rows": 1}), recent=recent(batches=30)),
    "full": figures(stats({"max_batch_rows": 4}), recent=recent(batches=30, each=4, reason="full")),
    "full of units of cost": figures(
        stats({"max_batch_rows": 8192, "max_batch_bytes": 10_000_000}),
        recent=recent(batches=30, each=20, rows=392, releases={"full": 21, "not_worth_waiting": 9}),
        weighs=True,
    ),
    "closed loop": figures(recent=recent(batches=30, each=3, rate=200, took_s=0.02)),
    "an estimate that is not there yet": figures(
        recent=recent(batches=4, each=6, reason="drain", estimate=None)
    ),
    "thin traffic": figures(recent=recent(batches=30, rate=20)),
    "the goal": figures(recent=recent(batches=900, each=6, reason="deadline", estimate=TIGHT), goal_s=0.030),
    "busy": figures(recent=BUSY),
}

REFUSALS: dict[str, Figures] = {
    "deadline": figures(recent=recent(batches=60, sheds={"deadline": 40}, rate=900)),
    "deadline, of the only request, in a proxy": figures(recent=recent(sheds={"deadline": 1}), goal_s=None),
    "client_deadline": figures(recent=recent(batches=60, sheds={"client_deadline": 40})),
    "queue_full": figures(recent=recent(batches=60, sheds={"queue_full": 40})),
    "too_many_groups": figures(recent=recent(batches=60, sheds={"too_many_groups": 40})),
    "displaced": figures(recent=recent(batches=60, sheds={"displaced": 40})),
    "no_worker, for a while": figures(recent=recent(batches=60, sheds={"no_worker": 40})),
    "no_worker, for a while, in a proxy": figures(
        recent=recent(batches=60, sheds={"no_worker": 40}), work=work(2)
    ),
    "draining": figures(recent=recent(batches=60, sheds={"draining": 1}), draining=True),
    "no_room": figures(recent=recent(batches=60, sheds={"no_room": 40})),
    "api_removed": figures(recent=recent(batches=60, sheds={"api_removed": 40})),
    "several": figures(
        recent=recent(batches=10, sheds={"no_room": 20, "client_deadline": 1, "deadline": 180}, rate=900)
    ),
}
