"""The asyncio shell: a batch that is sent to a worker while it runs another one."""

import asyncio
from typing import Any

import pytest

from tests.dispatcher.shell import Log, Workers, calls, dispatcher, outcomes
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.jobs import BatchResult, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

pytestmark = pytest.mark.virtual_time

SECONDS = 0.05
WAY_S = 0.01
"""To the worker, and back."""


class Remote(Workers):
    """A worker that runs its batches one after another, some way off."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = asyncio.Lock()
        self.started: list[float] = []
        self.left_s: list[list[float]] = []
        self.hangs_in = -1
        """The number of the batch that never ends."""

    async def __call__(self, job: Batch[Any]) -> BatchResult[str]:
        self.jobs.append(job)
        self.payloads.append(payloads_of(job))
        self.left_s.append(job.left_s)
        await asyncio.sleep(WAY_S)
        async with self.busy:
            self.started.append(asyncio.get_running_loop().time())
            await asyncio.sleep(SECONDS if job.number != self.hangs_in else 1e6)
        await asyncio.sleep(WAY_S)
        return BatchResult(
            [payload.upper() for payload in payloads_of(job)],
            chunks=[(sum([one.rows if one.cost is None else one.cost for one in job.requests]), SECONDS)],
        )


async def busy_with(remote: Remote, observer: Log) -> AsyncDispatcher[str, str]:
    """A shell that knows the worker; one batch holds two requests."""
    shell = dispatcher(
        remote, ApiRules(name="a", max_batch_rows=2, goal_s=10.0, timeout_s=5.0), workers=0, observer=observer
    )
    shell.worker_ready(0, takes_ahead=True)
    for _ in range(60):
        await outcomes(calls(shell, "x"))
    observer.lines.clear()
    remote.started.clear()
    remote.jobs.clear()
    remote.payloads.clear()
    remote.left_s.clear()
    return shell


@pytest.mark.parametrize("lost", [True, False])
async def test_a_batch_ahead_is_lost_with_its_worker(lost: bool) -> None:
    """It runs again on the next worker; the batch that ran does so only if it did not run out of time."""
    remote, log = Remote(), Log()
    shell = await busy_with(remote, log)
    remote.hangs_in = 61
    callers = calls(shell, "a", "b", "c", "d")
    await asyncio.sleep(1.0)
    if lost:
        shell.worker_lost(0)
    await asyncio.sleep(5.0)
    first = "lost" if lost else "timed_out"
    assert [line[2] for line in log.lines if line[0] == "ended"] == [first, "lost"]
    remote.busy = asyncio.Lock()  # of another process
    shell.worker_ready(1)

    assert await outcomes(callers) == [*(["A", "B"] if lost else ["BatchTimedOut"] * 2), "C", "D"]
    assert remote.payloads[2:] == [["a", "b"], ["c", "d"]][not lost :]
