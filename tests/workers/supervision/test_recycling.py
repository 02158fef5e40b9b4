"""Recycling of workers after many batches or with much memory; real processes."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from tests.workers.supervision.crowd import SERVICE, Crowd, Worker, crowd, replace_all
from uncork_workers.memory import resident_bytes
from uncork_workers.supervision import recycling
from uncork_workers.supervision.recycling import Recycler

pytestmark = pytest.mark.slow

BROKEN = SERVICE + "\nraise OSError('no weights')"


async def ready(on: Crowd, count: int) -> dict[int, Worker]:
    workers = await on.workers(count)
    on.leaving = {worker.launch for worker in workers.values()}
    return workers


def run_batches(on: Crowd, worker: Worker, count: int) -> None:
    for _ in range(count):
        on.supervisor.finished_batch(worker.launch)


async def test_a_worker_is_replaced_after_its_batches(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=2) as on:
        old = await ready(on, 2)
        recycler = Recycler(on.supervisor, most_batches=5)
        run_batches(on, old[0], 4)
        run_batches(on, old[1], 5)
        await recycler.check()
        new = await on.newcomers.get()
        await recycler.check()

        assert new.hello.index == 1
        assert on.took_over == [{new.launch}]
        assert {worker.launch for worker in on.supervisor.current_workers()} == {old[0].launch, new.launch}
        assert all(worker.alive() for worker in (*old.values(), new))
        assert (on.newcomers.empty(), on.exits.empty(), on.supervisor.restarts) == (True, True, 0)


async def test_workers_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    async with crowd(tmp_path, workers=2) as on:
        old = await ready(on, 2)
        for worker in old.values():
            run_batches(on, worker, 1)
        await Recycler(on.supervisor, most_batches=1).check()

        assert [len(pids) for pids in on.took_over] == [1, 1]
        assert {worker.index for worker in on.supervisor.current_workers()} == {0, 1}
        assert not {worker.launch for worker in on.supervisor.current_workers()} & on.leaving


async def test_a_worker_above_its_memory_is_replaced_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async with crowd(tmp_path, workers=1) as on:
        old = (await ready(on, 1))[0]
        recycler = Recycler(on.supervisor, most_bytes=1)
        await recycler.check()
        assert on.took_over == []  # it has not run a batch yet
        run_batches(on, old, 1000)
        await Recycler(on.supervisor, most_bytes=2**40).check()
        assert on.took_over == []  # it uses less
        await recycler.check()
        new = await on.newcomers.get()
        assert on.took_over == [{new.launch}]
        run_batches(on, new, 1)
        await recycler.check()
        assert on.took_over == [{new.launch}]
    replaced, warned = [record.getMessage() for record in caplog.records if "uses" in record.getMessage()]
    assert replaced.startswith("worker 0 uses ")
    assert replaced.endswith(" MiB; a new worker has replaced it")
    assert "before its first batch, more than the limit of 0 MiB" in warned


async def test_a_raised_limit_holds_for_workers_that_began_above_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 2
    monkeypatch.setattr(recycling, "resident_bytes", lambda pid: used)

    async with crowd(tmp_path, workers=1) as on:
        old = (await ready(on, 1))[0]
        recycler = Recycler(on.supervisor, most_bytes=1)
        run_batches(on, old, 1)
        await recycler.check()
        run_batches(on, await on.newcomers.get(), 1)
        recycler.most_bytes = 3
        await recycler.check()
        assert len(on.took_over) == 1

        used = 4
        await recycler.check()
        assert len(on.took_over) == 2


async def test_a_worker_goes_on_if_no_other_can_be_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    async with crowd(tmp_path, workers=1) as on:
        old = (await ready(on, 1))[0]
        run_batches(on, old, 9)
        (tmp_path / "echo.py").write_text(BROKEN)
        recycler = Recycler(on.supervisor, most_batches=9, clock=lambda: now)
        await recycler.check()
        await recycler.check()  # too early
        assert (on.took_over, old.alive(), len(caplog.records)) == ([], True, 1)

        (tmp_path / "echo.py").write_text(SERVICE)
        now += 1.3
        await recycler.check()
        new = await on.newcomers.get()
        assert on.took_over == [{new.launch}]
    says = caplog.records[0].getMessage()
    assert says.startswith("worker 0 has run 9 batches, but replacing it failed: new worker 0 ")


async def test_a_replacement_of_all_comes_first(tmp_path: Path) -> None:
    """The recycled worker may be stuck in its setup, so a reload does not wait for it. New workers stay."""
    slow = SERVICE.replace("def setup(self):", "def setup(self):\n        import time; time.sleep(600)")

    async with crowd(tmp_path, workers=2) as on:
        for old in (await ready(on, 2)).values():
            run_batches(on, old, 1)
        (tmp_path / "echo.py").write_text(slow)
        looking = asyncio.create_task(Recycler(on.supervisor, most_batches=1).check())
        stuck = await on.newcomers.get()
        (tmp_path / "echo.py").write_text(SERVICE)
        await replace_all(on.supervisor)
        new = {(await on.newcomers.get()).launch for _ in range(2)}
        await looking

        assert on.took_over == [new]
        assert stuck.launch not in new


def test_a_process_that_has_gone_takes_no_memory() -> None:
    assert resident_bytes(2**30) == 0
    assert resident_bytes(os.getpid()) > 2**20
