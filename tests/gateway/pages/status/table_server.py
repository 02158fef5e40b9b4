"""The state of a front end, and what each of its workers does, in words."""

from __future__ import annotations

from tests.gateway.pages.status.stage import Stage, named
from tests.gateway.pages.status.staged import RUNNING, figures, recent, stats, work
from uncork_dispatcher import Decision, RunningBatch, ScalingReason, ScalingState
from uncork_gateway.backends.slot import BackendSlot

FINE = recent(batches=100)
WORSE = recent(batches=100, errors={500: 50})
BAD = recent(batches=10, errors={502: 45}, sheds={"deadline": 45})
REFUSED = recent(batches=300, sheds={"queue_full": 2, "client_deadline": 2})
SLOW = recent(batches=30, each=8, rate=400)
HARD = recent(batches=30, each=32, took_s=1.0, rate=900)
FULL = recent(batches=30, each=4, reason="full", rate=220, took_s=0.1)
IDLE, BUSY = BackendSlot(0, "idle"), BackendSlot(1, "busy")
DIED = "worker 2 was killed by SIGKILL (3 times in a row; retrying in 6 s)"
URL = "http://10.0.0.7:8000"


def draining() -> Stage:
    stage = Stage(figures())
    stage.draining = True
    return stage


SENTENCES: dict[str, Stage] = {
    "one worker": Stage(figures()),
    "two workers": Stage(named("a", FINE, work=work(2))),
    "workers that are missing": Stage(
        named("a", FINE),
        slots=[
            *(IDLE, BUSY),
            BackendSlot(2, "lost", fault=DIED),
            BackendSlot(3, "starting", fault="worker 3 is being set up"),
            BackendSlot(4, "starting", fault="worker 4 exited with code 3"),
        ],
    ),
    "a server that is missing": Stage(
        named("m", FINE),
        slots=[
            BackendSlot(0, "busy", url="http://10.0.0.6:8000"),
            BackendSlot(1, "idle", url="http://10.0.0.6:8000"),
            BackendSlot(2, "lost", url=URL, fault="GET /v2/health/ready returned 503"),
        ],
        is_proxy=True,
    ),
    "no worker": Stage(named("a", FINE, work=work(0))),
    "draining": draining(),
    "errors": Stage(named("a", FINE), named("b", WORSE)),
    "errors and refusals": Stage(named("a", REFUSED), named("b", BAD)),
    "limits": Stage(
        named("embed", HARD),
        figures(stats({"name": "slow", "goal_s": 0.030}), recent=SLOW),
        figures(stats({"name": "rank", "max_batch_rows": 4}), recent=FULL),
    ),
    "limits of a proxy": Stage(named("m", HARD), is_proxy=True),
}

ACTIVITIES: dict[str, tuple[BackendSlot, RunningBatch | None]] = {
    "idle": (IDLE, None),
    "running one row": (
        BUSY,
        RUNNING._replace(rows=1, requests=1),
    ),
    "running requests of a row": (BUSY, RUNNING),
    "running larger requests": (
        BUSY,
        RUNNING._replace(rows=1200, requests=3, running_s=14.2),
    ),
    "just answered": (BUSY, None),
    "lost": (BackendSlot(2, "lost", fault=DIED), None),
    "starting": (BackendSlot(3, "starting"), None),
}

# With 2 to 16 workers.
SCALING: dict[ScalingState, Decision] = {
    "enough": Decision(5, 5, ScalingReason("enough", "predict", "goal")),
    "confirming": Decision(7, 5, ScalingReason("confirming", "predict", "throughput")),
    "up": Decision(7, 7, ScalingReason("up", "predict", "goal_out_of_reach")),
    "at_most": Decision(30, 16, ScalingReason("at_most", "predict", "goal")),
    "down": Decision(2, 4, ScalingReason("down", "predict", "goal")),
    "waiting": Decision(1, 3, ScalingReason("waiting", None, None, 25.0)),
    "recent_peak": Decision(3, 5, ScalingReason("recent_peak", "predict", "goal")),
    "starting": Decision(3, 5, ScalingReason("starting", "predict", "goal")),
    "at_least": Decision(1, 2, ScalingReason("at_least", "predict", "goal")),
    "asleep": Decision(0, 0, ScalingReason("asleep")),
    "unknown": Decision(2, 2, ScalingReason("unknown", None, None, None, ("a", "b"))),
}
