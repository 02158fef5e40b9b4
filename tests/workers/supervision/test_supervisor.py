"""The supervisor, with real worker processes."""

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from tests.loops import HANG_S
from tests.workers.supervision.crowd import SERVICE, crowd, goes, left_in_peace, replace_all
from uncork_workers.cores import usable_cores
from uncork_workers.supervision.supervisor import ReplacementFailed

Run = Callable[[Coroutine[Any, Any, None]], None]


async def test_workers_are_started_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its share of cores, and the GPUs in turn; workers that exit by themselves are not killed."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    monkeypatch.setenv("MKL_NUM_THREADS", "77")
    for name in (
        "OMP_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ):
        monkeypatch.delenv(name, raising=False)

    async with crowd(tmp_path, workers=3, gpus=["5", "GPU-8932f937"]) as all_of_them:
        workers = await all_of_them.workers(3)
        environment, *others = (
            json.loads(workers[index].hello.service.apis[0].doc) for index in sorted(workers)
        )
        sessions = {worker.hello.pid: os.getsid(worker.hello.pid) for worker in workers.values()}
        all_of_them.hang_up()
        await all_of_them.supervisor.stop(grace_s=10 * HANG_S)

        assert sorted(workers) == [0, 1, 2]
        assert all(pid == session for pid, session in sessions.items())  # Ctrl-C is not for them
        assert not any(worker.alive() for worker in workers.values())
        assert all_of_them.supervisor.restarts == 0
        assert all_of_them.exits.empty()
        assert left_in_peace(tmp_path) == {worker.hello.pid for worker in workers.values()}
        share = str(max(1, usable_cores() // 3))
        assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == share
        assert environment["NUMEXPR_NUM_THREADS"] == environment["VECLIB_MAXIMUM_THREADS"] == share
        assert environment["OMP_WAIT_POLICY"] == "passive"
        assert environment["MKL_NUM_THREADS"] == "77"
        assert environment["PATH"] == os.environ["PATH"]
        assert environment["GREETING"] == "hello"
        seen = [each["CUDA_VISIBLE_DEVICES"] for each in (environment, *others)]
        assert seen == ["5", "GPU-8932f937", "5"]


async def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    """With its index, as another process; workers that exceed the grace period are killed.

    A launch that does not run, or never did, is ignored.
    """
    async with crowd(tmp_path, workers=2) as all_of_them:
        first = await all_of_them.workers(2)
        all_of_them.supervisor.kill(os.getpid())
        all_of_them.supervisor.kill(first[1].launch)
        exited = await all_of_them.exits.get()
        again = await all_of_them.workers(1)

        assert exited == (1, "was killed by SIGKILL")
        assert not first[1].alive()
        assert list(again) == [1]
        assert again[1].launch not in {worker.launch for worker in first.values()}
        assert all_of_them.supervisor.restarts == 1
        assert first[0].alive()

        await all_of_them.supervisor.stop(grace_s=0)
        all_of_them.supervisor.kill(again[1].launch)

        assert not again[1].alive()
        assert not first[0].alive()
        assert all_of_them.exits.empty()


async def test_a_worker_that_exits_is_reported_with_its_code(tmp_path: Path) -> None:
    """It is started again, as its file may appear later."""
    async with crowd(tmp_path, workers=1, target=f"{tmp_path}/later.py:Echo") as all_of_them:
        exited = await all_of_them.exits.get()
        (tmp_path / "later.py").write_text(SERVICE)
        again = await all_of_them.workers(1)
        all_of_them.hang_up()

        assert exited == (0, "exited with code 2")
        assert list(again) == [0]
        # It may have been started a few times before its file was complete.
        while (exited := await all_of_them.exits.get()) == (0, "exited with code 2"):
            pass
        assert exited == (0, "exited with code 0")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("turns", range(4))
def test_stopping_at_once_leaves_nobody_behind(tmp_path: Path, run: Run, turns: int) -> None:
    async def scenario() -> None:
        earlier = set(psutil.Process().children())
        async with crowd(tmp_path, workers=2) as all_of_them:
            for _ in range(turns):
                await asyncio.sleep(0)
            await all_of_them.supervisor.stop(grace_s=0)

            # uvloop kills them without waiting for their exit; it must have seen it before it is closed. What
            # is about to end has no command line any more, but is still a child. The timeout ends a test that
            # hangs.
            for _ in itertools.takewhile(
                lambda _: set(psutil.Process().children()) - earlier, itertools.count()
            ):
                await asyncio.sleep(0)

    run(scenario())


async def test_workers_are_added_and_removed(tmp_path: Path) -> None:
    """A removed worker finishes its batch and is not started again. One that is not connected is killed."""
    async with crowd(tmp_path, workers=1) as on:
        first = await on.workers(1)
        await on.supervisor.resize(3)
        more = await on.workers(2)
        assert sorted(more) == [1, 2]

        on.retiring = {more[1].launch}
        stopped = on.supervisor.current_workers()[1]
        await on.supervisor.resize(1)
        assert not await on.supervisor.replace(stopped)
        await goes(more[2])
        more[1].connection.close()
        await goes(more[1])

        assert first[0].alive()
        assert [one.launch for one in on.supervisor.current_workers()] == [first[0].launch]
        assert on.exits.empty()
        assert on.supervisor.restarts == 0
        assert on.supervisor.workers == 1


async def test_a_server_without_workers_has_nothing_to_replace(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=0) as on:
        with pytest.raises(ReplacementFailed, match="this server starts no workers"):
            await replace_all(on.supervisor)
