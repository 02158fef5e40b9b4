"""Workers that leave, or that are not expected any more."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import core_with, poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules

RULES = ApiRules(name="a", policy="none", timeout_s=1.0)


def two_speeds() -> tuple[Dispatcher, float]:
    """A core whose worker 1 takes four times as long as worker 0, and the time."""
    core, now = core_with(RULES, workers=2), 0.0
    for number in range(0, 40, 2):
        core.submit(number, api="a", key=0, now=now)
        core.submit(number + 1, api="a", key=1, now=now)
        for start in sorted(starts(poll_all(core, now)), key=lambda start: start.worker):
            core.batch_done(start.number, status="worked", now=now + 0.1, seconds=0.1 * 4**start.worker)
        now += 0.1
    poll_all(core, now)
    return core, now


@pytest.mark.parametrize(
    "how", ["lost", "retired", "retired after its batch", "retired and lost", "timed out"]
)
def test_a_worker_that_leaves_is_forgotten(how: str) -> None:
    """However it leaves: the other one is the average, and a new worker with its number is, too."""
    core, now = two_speeds()
    core.submit(100, api="a", key=0, now=now)
    core.submit(101, api="a", key=1, now=now)
    batches = {start.worker: start for start in starts(poll_all(core, now))}
    seconds = core.stats(now=now)[0].estimate.seconds(1)
    assert batches[1].predicted_s > 1.5 * seconds
    core.batch_done(batches[0].number, status="failed", now=now)
    if how == "retired":
        core.batch_done(batches[1].number, status="failed", now=now)
    if how.startswith("retired"):
        core.worker_retired(1, now=now)
    if how == "retired after its batch":
        core.batch_done(batches[1].number, status="worked", now=now + 0.1, seconds=0.4)
    if how.endswith("lost"):
        core.worker_lost(1, now=now)
    if how == "timed out":
        now += 1.0
    now += 0.1
    poll_all(core, now)
    core.cancel(101, now=now)
    core.worker_ready(1, now=now)
    poll_all(core, now)
    core.submit(102, api="a", key=0, now=now)
    core.submit(103, api="a", key=1, now=now)
    average = core.stats(now=now)[0].estimate.seconds(1)
    ran = starts(poll_all(core, now))
    assert [start.predicted_s for start in ran] == [average] * len(ran)
    assert {start.worker for start in ran} >= {1}
