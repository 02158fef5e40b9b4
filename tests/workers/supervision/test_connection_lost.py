"""The supervisor, with a launcher on another machine that learns late that its processes have ended."""

import asyncio

import pytest

from uncork_workers.supervision.launcher import WorkerProcess
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit

pytestmark = pytest.mark.virtual_time


class FarLauncher:
    def __init__(self) -> None:
        self.running: dict[int, WorkerProcess] = {}
        self.killed: list[int] = []
        self.launched: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._count = 0

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
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


async def test_a_process_that_lost_its_connection_is_replaced_soon() -> None:
    launcher, exits = FarLauncher(), list[WorkerExit]()
    supervisor = Supervisor(launcher, workers=1, on_exit=exits.append, take_over=lambda launches: [])
    supervisor.start()
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
    await supervisor.stop(grace_s=0)


async def test_the_connection_of_an_ended_process_is_dropped_soon() -> None:
    """Another process may hold it open. A last reply is read before."""
    launcher, dropped = FarLauncher(), list[int]()
    supervisor = Supervisor(
        launcher, workers=1, on_exit=lambda end: None, take_over=lambda launches: [], drop=dropped.append
    )
    supervisor.start()
    first = await launcher.launched.get()
    launcher.end(first.launch, "was killed")
    await asyncio.sleep(1.9)
    assert dropped == []
    await asyncio.sleep(0.2)
    assert dropped == [first.launch]
    await supervisor.stop(grace_s=0)


@pytest.mark.parametrize(
    "error", [OSError("no memory"), ValueError("embedded null byte"), RuntimeError("no thread")]
)
async def test_a_start_that_fails_in_any_way_is_tried_again(error: Exception) -> None:
    class Failing(FarLauncher):
        async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
            if len(exits) < 3:
                raise error
            return await super().launch(index, standby=standby)

    exits = list[WorkerExit]()
    launcher = Failing()
    supervisor = Supervisor(launcher, workers=1, on_exit=exits.append, take_over=lambda launches: [])
    supervisor.start()
    await launcher.launched.get()

    assert [one.failures for one in exits] == [1, 2, 3]
    assert exits[0].how == f"could not be started ({error})"
    await supervisor.stop(grace_s=0)


async def test_a_worker_is_started_again_although_its_end_cannot_be_reported() -> None:
    def fail(end: WorkerExit) -> None:
        raise KeyError(end.index)

    launcher = FarLauncher()
    supervisor = Supervisor(launcher, workers=1, on_exit=fail, take_over=lambda launches: [])
    supervisor.start()
    first = await launcher.launched.get()
    launcher.end(first.launch, "was killed")
    second = await launcher.launched.get()

    assert second.launch != first.launch
    await supervisor.stop(grace_s=0)
