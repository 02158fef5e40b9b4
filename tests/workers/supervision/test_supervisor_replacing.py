"""Replacement of workers, with real processes."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.loops import HANG_S, until
from tests.workers.supervision.crowd import SERVICE, crowd, goes, left_in_peace, only_alive, replace_all
from uncork_workers.supervision.launcher import WorkerProcess
from uncork_workers.supervision.supervisor import ReplacementFailed

pytestmark = pytest.mark.slow


async def test_new_workers_take_over_together(tmp_path: Path) -> None:
    """The old ones exit by themselves, which is not a failure; the new ones are restarted from then on."""
    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        on.leaving = {worker.launch for worker in old.values()}
        await replace_all(on.supervisor)
        new = {one.hello.index: one for one in (await on.newcomers.get(), await on.newcomers.get())}

        assert sorted(new) == [0, 1]
        assert on.took_over == [{worker.launch for worker in new.values()}]
        assert all(worker.alive() for worker in (*old.values(), *new.values()))
        for worker in old.values():
            worker.connection.close()
        on.supervisor.kill(new[1].launch)
        assert await on.exits.get() == (1, "was killed by SIGKILL")
        again = await on.workers(1)
        assert list(again) == [1]
        assert on.supervisor.restarts == 1

        on.hang_up()
        await on.supervisor.stop(grace_s=10 * HANG_S)
        assert on.exits.empty()
        assert left_in_peace(tmp_path) >= {worker.hello.pid for worker in old.values()}
        assert not any(worker.alive() for worker in (*old.values(), *new.values(), *again.values()))


async def test_old_workers_that_will_not_leave_are_killed(tmp_path: Path) -> None:
    """They are not started again."""
    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        on.leaving = {old[0].launch}
        await replace_all(on.supervisor)
        await goes(old[1])

        assert old[0].alive()
        assert on.exits.empty()
        assert on.supervisor.restarts == 0
        assert on.arrivals.empty()


async def test_a_replacement_can_be_replaced_while_the_first_ones_still_work(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=1) as on:
        workers = [(await on.workers(1))[0]]
        for _ in range(2):
            on.leaving = {workers[-1].launch}
            await replace_all(on.supervisor)
            workers.append(await on.newcomers.get())

        assert all(worker.alive() for worker in workers)
        assert len({worker.launch for worker in workers}) == 3
        assert on.exits.empty()


PICKY = SERVICE + "\nimport sys\nif sys.argv[sys.argv.index('--index') + 1] == '1': raise OSError"


@pytest.mark.parametrize(
    ("code", "refusal", "says"),
    [
        ("raise ValueError", None, r"new worker \d exited with code 2"),
        (SERVICE + "\nEcho.setup = None", None, r"new worker \d exited with code 1"),
        (PICKY, None, "new worker 1 exited with code 2"),
        (SERVICE, "unknown policy 'magic'", "unknown policy 'magic'"),
    ],
    ids=["import", "setup", "one of them", "refused"],
)
async def test_a_replacement_that_fails_leaves_the_old_workers_in_force(
    tmp_path: Path, code: str, refusal: str | None, says: str
) -> None:
    """All new workers are killed, and the next attempt may succeed."""
    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        on.refusal, on.leaving = refusal, {worker.launch for worker in old.values()}
        on.reasons = dict.fromkeys(old, "the failure of an earlier attempt")
        (tmp_path / "echo.py").write_text(code)
        with pytest.raises(ReplacementFailed, match=says):
            await replace_all(on.supervisor)

        assert (on.took_over, on.exits.empty()) == ([], True)
        await only_alive(tmp_path, *old.values())

        on.refusal = None
        (tmp_path / "echo.py").write_text(SERVICE)
        await replace_all(on.supervisor)
        assert len(on.took_over) == 1
        for worker in old.values():
            on.supervisor.kill(worker.launch)
            await goes(worker)
        assert on.exits.empty()  # their replacements are in charge


async def test_workers_that_cannot_be_started_cannot_take_over(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=1, target="x" * 200_000) as on:
        await on.exits.get()
        with pytest.raises(ReplacementFailed, match="Argument list too long"):
            await replace_all(on.supervisor)


async def test_a_start_that_raises_anything_leaves_the_old_workers_in_force(tmp_path: Path) -> None:
    """On Ray, a thread packs the code first, and the system may refuse a thread."""

    async def start(index: int, *, standby: bool = False) -> WorkerProcess:
        raise RuntimeError("can't start new thread")

    async with crowd(tmp_path, workers=1) as on:
        old = await on.workers(1)
        [process] = on.supervisor.current_workers()
        on.supervisor.start_by(start)
        with pytest.raises(ReplacementFailed, match=r"^can't start new thread$"):
            await on.supervisor.replace(process)

        assert not on.supervisor.is_replacing()
        await only_alive(tmp_path, *old.values())


async def test_a_place_in_a_crash_loop_can_be_taken_over(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=1, target=f"{tmp_path}/later.py:Echo") as on:
        for _ in range(2):
            await on.exits.get()
        (tmp_path / "later.py").write_text(SERVICE)
        await replace_all(on.supervisor)
        new = await on.newcomers.get()
        on.supervisor.kill(new.launch)
        again = (await on.workers(1))[0]
        # The crash loop may have found the file too, and started a worker before it was replaced.
        while again.launch not in {process.launch for process in on.supervisor.current_workers()}:
            again = (await on.workers(1))[0]

        assert again.launch != new.launch
        await only_alive(tmp_path, again)


async def test_stopping_ends_a_replacement(tmp_path: Path) -> None:
    slow = SERVICE.replace("def setup(self):", "def setup(self):\n        import time; time.sleep(600)")

    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        (tmp_path / "echo.py").write_text(slow)
        replacing = asyncio.create_task(replace_all(on.supervisor))
        new = [await on.newcomers.get() for _ in range(2)]
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)

        await only_alive(tmp_path, *old.values())
        assert replacing.cancelled()
        for worker in new:
            await goes(worker)


async def test_two_who_want_all_replaced_are_served_one_after_the_other(tmp_path: Path) -> None:
    """The second caller may have newer code."""
    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        on.leaving = {worker.launch for worker in old.values()}
        await asyncio.gather(replace_all(on.supervisor), replace_all(on.supervisor))
        new = [await on.newcomers.get() for _ in range(4)]

        assert on.took_over == [{one.launch for one in new[:2]}, {one.launch for one in new[2:]}]
        assert [one.hello.index for one in new] in (
            [0, 1, 0, 1],
            [0, 1, 1, 0],
            [1, 0, 0, 1],
            [1, 0, 1, 0],
        )


async def test_one_worker_is_replaced_alone(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=2) as on:
        old = await on.workers(2)
        assert await on.supervisor.replace(on.supervisor.current_workers()[1])
        new = await on.newcomers.get()
        await goes(old[1])  # it is not in on.leaving
        assert (new.hello.index, old[0].alive(), on.exits.empty()) == (1, True, True)
        on.supervisor.kill(new.launch)
        assert await on.exits.get() == (1, "was killed by SIGKILL")
        on.supervisor.kill(old[0].launch)
        assert await on.exits.get() == (0, "was killed by SIGKILL")
        assert sorted(await on.workers(2)) == [0, 1]


async def test_hurry_ends_the_time_that_workers_are_given(tmp_path: Path) -> None:
    """The connections stay open here, so the workers would not exit."""
    async with crowd(tmp_path, workers=1) as on:
        [worker] = (await on.workers(1)).values()
        hurry = asyncio.Event()
        stopping = asyncio.create_task(on.supervisor.stop(grace_s=10 * HANG_S, hurry=hurry))
        hurry.set()
        await stopping
        assert not worker.alive()


async def test_standbys_that_do_not_take_over_are_killed(tmp_path: Path) -> None:
    """The old workers stay, and can be replaced later."""
    async with crowd(tmp_path, workers=2) as on:
        before = await on.workers(2)
        async with on.supervisor.replacing_all() as standbys:
            processes = standbys.processes
            assert on.supervisor.is_replacing()
            assert standbys.launches == [process.launch for process in processes]
        assert not on.supervisor.is_replacing()
        await asyncio.gather(*(process.ended for process in processes))

        assert {one.launch for one in on.supervisor.current_workers()} == {
            worker.launch for worker in before.values()
        }
        await replace_all(on.supervisor)


async def test_workers_of_another_kind_take_over(tmp_path: Path) -> None:
    """The new start serves restarts too, but not before the takeover, and not if that fails."""
    async with crowd(tmp_path, workers=1) as on:
        await on.workers(1)
        on.leaving = set()
        other = on.processes.starter(replace(on.local, arguments=("--log-level", "error")))
        on.refusal = "the service is wrong"
        with pytest.raises(ReplacementFailed, match="the service is wrong"):
            async with on.supervisor.replacing_all(start=other) as standbys:
                standbys.take_over()
        await on.newcomers.get()
        [old] = on.supervisor.current_workers()
        on.supervisor.kill(old.launch)
        again = (await on.workers(1))[0]
        assert "error" not in command_of(again.hello.pid)

        on.refusal = None
        taken: list[set[int]] = []

        def take_over(launches: Collection[int]) -> set[int]:
            taken.append(set(launches))
            return set()

        async with on.supervisor.replacing_all(start=other) as standbys:
            standbys.take_over(take_over)
        new = await on.newcomers.get()
        assert (taken, on.took_over) == ([{new.launch}], [])
        assert "error" in command_of(new.hello.pid)
        on.supervisor.kill(new.launch)
        assert "error" in command_of((await on.workers(1))[0].hello.pid)

        on.supervisor.start_by(on.processes.launch)
        [process] = on.supervisor.current_workers()
        on.supervisor.kill(process.launch)
        assert "error" not in command_of((await on.workers(1))[0].hello.pid)


async def test_workers_may_get_another_kind_while_one_is_replaced(tmp_path: Path) -> None:
    """As by a reload that needs no new workers, during the recycling of one."""
    async with crowd(tmp_path, workers=1) as on:
        await on.workers(1)
        [old] = on.supervisor.current_workers()
        replacing = asyncio.create_task(on.supervisor.replace(old))
        await until(on.supervisor.is_replacing)
        on.supervisor.start_by(on.processes.starter(replace(on.local, arguments=("--log-level", "error"))))
        assert await replacing
        new = await on.newcomers.get()
        on.supervisor.kill(new.launch)
        assert "error" in command_of((await on.workers(1))[0].hello.pid)


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
