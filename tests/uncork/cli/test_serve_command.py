"""What ``uncork serve`` prints while its services start, and what ends it meanwhile."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from tests.gateway.fake_worker import json_api, service
from tests.gateway.running import turns
from tests.uncork.server.running.stopped import stopped
from uncork.cli.serve.command import _announce
from uncork.cli.serve.startup_progress import StartupProgress
from uncork.server.listeners import open_listeners
from uncork.server.options import ServeOptions
from uncork.server.running.service import RunningServer, RunningService
from uncork.server.services import services_of


@asynccontextmanager
async def starting(
    folder: Path, background: Sequence[asyncio.Task[None]] = ()
) -> AsyncIterator[tuple[RunningServer, asyncio.Task[None]]]:
    """Announce two services, whose workers have not begun."""
    options = ServeOptions(target=["a=x.py:A", "b=x.py:B"], port=0, state=False)
    with open_listeners(options) as listeners:
        running = stopped(options, folder, credentials=listeners.credentials)
        for name, own in services_of(options).items():
            running.services[name] = await RunningService.open(name, own, running)
        progress = StartupProgress(running, console=Console(file=io.StringIO()))
        announcing = asyncio.create_task(_announce(running, listeners, background, progress))
        await turns()
        try:
            yield running, announcing
        finally:
            for task in (announcing, *background):
                task.cancel()
            await asyncio.gather(announcing, *background, return_exceptions=True)
            for each in running.services.values():
                await each.close()
            running.gateway.front_end.close()


async def test_a_service_that_is_removed_while_it_starts_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by a client that unloads it."""
    async with starting(tmp_path) as (running, announcing):
        gateway = running.gateway
        removed, left = running.services.values()
        await gateway.remove(removed.served)
        assert capsys.readouterr().out == ""
        left.served.events.serve(service(name="Left"))
        await turns()
        assert ": Left with 1 worker\n" in capsys.readouterr().out
        left.served.batching.ready.set()
        gateway.front_end.readiness_changed()
        await turns()
        assert capsys.readouterr().out.startswith("ready after ")
        assert not announcing.done()
        removed.served.events.unusable("too late")


@pytest.mark.parametrize("described", [0, 2])
@pytest.mark.parametrize("fails", ["a task", "what keeps workers running"])
async def test_a_failure_ends_the_server_although_services_still_start(
    tmp_path: Path, described: int, fails: str
) -> None:
    """They may fail in setup again and again."""
    ended = asyncio.Event()

    async def run() -> None:
        await ended.wait()
        raise RuntimeError("broken")

    async with starting(tmp_path, [asyncio.create_task(run())]) as (running, announcing):
        for each in list(running.services.values())[:described]:
            each.served.events.serve(service(json_api(each.name)))
        await turns()
        assert not announcing.done()
        if fails == "a task":
            ended.set()
        else:
            running.failed.set_exception(RuntimeError("broken"))
        await turns()
        assert announcing.done()
        with pytest.raises(RuntimeError, match="broken"):
            announcing.result()
