"""The progress of workers that start, on a terminal and in the log."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from typing import cast

import pytest
from rich.console import Console

from uncork.cli.serve import startup_progress
from uncork.cli.serve.startup_progress import StartupProgress
from uncork.server.running.service import RunningServer
from uncork_gateway.backends.worker_failures import WorkerStartup


class Workers:
    def __init__(self, count: int) -> None:
        self.draining = False
        self.names = [f"worker {number}" for number in range(count)]
        self.said: dict[str, WorkerStartup] = {}
        self.are_ready: set[str] = set()

    def expected(self) -> list[str]:
        return self.names

    def starts(self) -> dict[str, WorkerStartup]:
        return self.said

    def ready_workers(self) -> set[str]:
        return self.are_ready


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=60, _environ={"TERM": "xterm"})


def test_a_line_says_what_each_does_and_for_how_long() -> None:
    clock, workers = Clock(), Workers(3)
    progress = StartupProgress(cast(RunningServer, workers), console=console(terminal=True), clock=clock)
    clock.now += 4
    workers.said = {"worker 1": WorkerStartup("setup", "", 101.5)}
    assert progress.line() == "worker 0: import, 4 s · worker 1: setup, 2 s · worker 2: import, 4 s"

    workers.are_ready = {"worker 0", "worker 2"}
    workers.said = {"worker 1": WorkerStartup("warm-up of predict", " with 32 rows", 103.0)}
    assert progress.line() == "2 of 3 workers ready · worker 1: warm-up of predict with 32 rows, 1 s"


def test_the_log_has_a_line_for_each_stage(caplog: pytest.LogCaptureFixture) -> None:
    """Not for each size of a warm-up, and none for what is over before somebody looks."""
    caplog.set_level(logging.INFO, logger="uncork.gateway")
    workers = Workers(2)
    workers.are_ready = {"worker 1"}
    progress = StartupProgress(cast(RunningServer, workers), console=console(terminal=False))
    stages = [None, "setup", "setup", "warm-up of a", "warm-up of a"]
    for number, stage in enumerate(stages):
        workers.said = {} if stage is None else {"worker 0": WorkerStartup(stage, f" with {number} rows", 0)}
        progress.log_stages()
    workers.are_ready = set(workers.names)
    progress.log_stages()

    assert caplog.messages == [
        "worker 0: import",
        "worker 0: setup",
        "worker 0: warm-up of a",
        "worker 0: ready",
    ]


@pytest.mark.parametrize("ends", ["ready", "draining"])
async def test_what_is_shown_goes_when_all_are_ready_or_the_server_stops(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal one line changes, which is never wider than that; on none nothing is shown."""
    monkeypatch.setattr(startup_progress, "_SHOW_EVERY_S", 0)
    monkeypatch.setattr(startup_progress, "_LOG_EVERY_S", 0)

    async def shown(*, terminal: bool) -> str:
        workers, on = Workers(9), console(terminal=terminal)
        running = asyncio.create_task(StartupProgress(cast(RunningServer, workers), console=on).run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if ends == "ready":
            workers.are_ready = set(workers.names)
        else:
            workers.draining = True
        await running
        assert isinstance(on.file, io.StringIO)
        return on.file.getvalue()

    text = await shown(terminal=True)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "worker 0: import, 0 s · worker 1: import" in plain
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 60
    assert text.endswith("\x1b[2K")  # the line is gone
    assert await shown(terminal=False) == ""
