"""The supervisor, with a launcher on another machine that learns late that its processes have ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from uncork_workers.supervision.launcher import WorkerProcess
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit

pytestmark = pytest.mark.virtual_time


class FarLauncher:
    """Launches processes after ``errors``."""

    def __init__(self, *errors: Exception) -> None:
        self.running: dict[int, WorkerProcess] = {}
        self.killed: list[int] = []
        self.launched: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._errors = list(errors)
        self._count = 0

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        if self._errors:
            raise self._errors.pop(0)
        self._count += 1
        worker = WorkerProcess(index, self._count, asyncio.get_running_loop().create_future())
        self.running[self._count] = worker
        self.launched.put_nowait(worker)
        return worker

    def kill(self, launch: int) -> None:
        if launch in self.running:
            self.killed.append(launch)
            self.end(launch, "was killed")

    def end(self, launch: int, how: str) -> None:
        self.running.pop(launch).ended.set_result(how)


@asynccontextmanager
async def supervising(
    launcher: FarLauncher,
    on_exit: Callable[[WorkerExit], None] = lambda end: None,
    drop: Callable[[int], None] = lambda launch: None,
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(launcher, workers=1, on_exit=on_exit, take_over=lambda launches: [], drop=drop)
    supervisor.start()
    yield supervisor
    await supervisor.stop(grace_s=0)


async def test_a_process_that_lost_its_connection_is_replaced_soon() -> None:
    launcher, exits = FarLauncher(), list[WorkerExit]()
    async with supervising(launcher, exits.append) as supervisor:
        first = await launcher.launched.get()
        supervisor.finished_batch(first.launch)
        lost_at = asyncio.get_running_loop().time()
        supervisor.connection_lost(first.launch)
        second = await launcher.launched.get()

        assert asyncio.get_running_loop().time() - lost_at == pytest.approx(2.0)
        assert launcher.killed == [first.launch]
        assert [one.how for one in exits] == ["was killed"]

        supervisor.connection_lost(second.launch)
        await asyncio.sleep(1.9)
        launcher.end(second.launch, "exited with code 1")
        third = await launcher.launched.get()
        await asyncio.sleep(10)

        assert launcher.killed == [first.launch]
        assert set(launcher.running) == {third.launch}


async def test_the_connection_of_an_ended_process_is_dropped_soon() -> None:
    """Another process may hold it open. A last reply is read before."""
    launcher, dropped = FarLauncher(), list[int]()
    async with supervising(launcher, drop=dropped.append):
        first = await launcher.launched.get()
        launcher.end(first.launch, "was killed")
        await asyncio.sleep(1.9)
        assert dropped == []
        await asyncio.sleep(0.2)
        assert dropped == [first.launch]


@pytest.mark.parametrize(
    "error", [OSError("no memory"), ValueError("embedded null byte"), RuntimeError("no thread")]
)
async def test_a_start_that_fails_in_any_way_is_tried_again(error: Exception) -> None:
    """Later each time: after about 0.1 s, 0.2 s and 0.4 s."""
    launcher, exits = FarLauncher(error, error, error), list[WorkerExit]()
    async with supervising(launcher, exits.append) as supervisor:
        began = asyncio.get_running_loop().time()
        await launcher.launched.get()

        assert [one.failures for one in exits] == [1, 2, 3]
        assert exits[0].how == f"could not be started ({error})"
        for one, mean_s in zip(exits, (0.1, 0.2, 0.4), strict=True):
            assert 0.75 * mean_s <= one.retry_s <= 1.25 * mean_s
        waited_s = asyncio.get_running_loop().time() - began
        assert waited_s == pytest.approx(sum(one.retry_s for one in exits))
        assert supervisor.restarts == 3


async def test_more_workers_do_not_wait_for_a_recycled_one() -> None:
    """Its successor may load a model for minutes, or hang in its setup. Fewer workers can wait."""
    launcher = FarLauncher()
    async with supervising(launcher) as supervisor:
        recycled = await launcher.launched.get()
        replacing = asyncio.create_task(supervisor.replace(recycled))
        standby = await launcher.launched.get()
        await supervisor.resize(2)
        assert not await replacing
        more = await launcher.launched.get()
        assert launcher.killed == [standby.launch]
        assert set(launcher.running) == {recycled.launch, more.launch}

        replacing = asyncio.create_task(supervisor.replace(recycled))
        standby = await launcher.launched.get()
        resizing = asyncio.create_task(supervisor.resize(1))
        await asyncio.sleep(1)
        supervisor.mark_ready(standby.launch)
        assert await replacing
        await resizing
        assert set(launcher.running) == {standby.launch}


async def test_the_end_does_not_wait_for_ever_for_a_killed_process() -> None:
    """It may hang in the kernel. Otherwise no server would stop, and no reload begin after its removal."""

    class Hanging(FarLauncher):
        def end(self, launch: int, how: str) -> None:
            """Do nothing."""

    launcher = Hanging()
    async with supervising(launcher):
        process = await launcher.launched.get()

    assert launcher.killed == [process.launch]


async def test_only_deaths_before_a_first_batch_count() -> None:
    launcher, exits = FarLauncher(), list[WorkerExit]()
    async with supervising(launcher, exits.append) as supervisor:
        for batches in (0, 0, 2, 0):
            worker = await launcher.launched.get()
            for _ in range(batches):
                supervisor.finished_batch(worker.launch)
            supervisor.kill(worker.launch)
        await launcher.launched.get()

    assert [end.failures for end in exits] == [1, 2, 0, 1]
    assert [end.retry_s > 0 for end in exits] == [True, True, False, True]


async def test_a_worker_is_started_again_although_its_end_cannot_be_reported() -> None:
    def fail(end: WorkerExit) -> None:
        raise KeyError(end.index)

    launcher = FarLauncher()
    async with supervising(launcher, fail):
        first = await launcher.launched.get()
        launcher.end(first.launch, "was killed")
        second = await launcher.launched.get()

        assert second.launch != first.launch
