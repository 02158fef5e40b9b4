"""The state of a front end, and what each of its workers does, in words."""

from __future__ import annotations

from tests.gateway.pages.status.stage import Stage, named
from tests.gateway.pages.status.staged import RUNNING, figures, recent, stats, work
from uncork_dispatcher import RunningBatch
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status.formatting import PROXY

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


SENTENCES: dict[str, tuple[Stage, str]] = {
    "one worker": (Stage(figures()), "1 worker is ready."),
    "two workers": (Stage(named("a", FINE, work=work(2))), "2 workers are ready."),
    "workers that are missing": (
        Stage(
            named("a", FINE),
            slots=[
                *(IDLE, BUSY),
                BackendSlot(2, "lost", fault=DIED),
                BackendSlot(3, "starting", fault="worker 3 is being set up"),
                BackendSlot(4, "starting", fault="worker 4 exited with code 3"),
            ],
        ),
        "2 of 5 workers are ready. Worker 2 was killed by SIGKILL (3 times in a row; retrying in 6 s). "
        "Worker 3 is being set up. Worker 4 exited with code 3.",
    ),
    "a server that is missing": (
        Stage(
            named("m", FINE),
            slots=[
                BackendSlot(0, "busy", url="http://10.0.0.6:8000"),
                BackendSlot(1, "idle", url="http://10.0.0.6:8000"),
                BackendSlot(2, "lost", url=URL, fault="GET /v2/health/ready returned 503"),
            ],
            names=PROXY,
        ),
        "1 of 2 servers is ready. http://10.0.0.7:8000: GET /v2/health/ready returned 503.",
    ),
    "no worker": (
        Stage(named("a", FINE, work=work(0))),
        "No worker is ready: worker 0 was killed by SIGKILL.",
    ),
    "draining": (
        draining(),
        "The server is shutting down: it finishes the requests that it has accepted, and refuses others.",
    ),
    "errors": (
        Stage(named("a", FINE), named("b", WORSE)),
        "1 worker is ready. b is degraded: 33 % of its requests failed.",
    ),
    "errors and refusals": (
        Stage(named("a", REFUSED), named("b", BAD)),
        "1 worker is ready. a is degraded: 1 % of its requests were refused. b is failing: 45 % of its "
        "requests failed and 45 % were refused.",
    ),
    "limits": (
        Stage(
            named("embed", HARD),
            figures(stats({"name": "slow", "goal_s": 0.030}), recent=SLOW),
            figures(stats({"name": "rank", "max_batch_rows": 4}), recent=FULL),
        ),
        "1 worker is ready. embed is limited by the number of workers. slow is limited by its goal. rank is "
        "limited by its batch cap.",
    ),
    "limits of a proxy": (
        Stage(named("m", HARD), names=PROXY),
        "1 worker is ready. m is limited by the number of concurrent calls.",
    ),
}

ACTIVITIES: dict[str, tuple[BackendSlot, RunningBatch | None, str]] = {
    "idle": (IDLE, None, "waits for a batch"),
    "running one row": (
        BUSY,
        RUNNING._replace(rows=1, requests=1),
        "has been running 1 row of predict for 4 ms",
    ),
    "running requests of a row": (BUSY, RUNNING, "has been running 8 rows of predict for 4 ms"),
    "running larger requests": (
        BUSY,
        RUNNING._replace(rows=1200, requests=3, running_s=14.2),
        "has been running 3 requests (1,200 rows) of predict for 14 s",
    ),
    "just answered": (BUSY, None, "finishes a batch"),
    "lost": (BackendSlot(2, "lost", fault=DIED), None, DIED),
    "starting": (BackendSlot(3, "starting"), None, "starting"),
}
