"""What the dispatcher learns about the workers to which it may send a batch ahead."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.services.test_replacement import replacing
from uncork_dispatcher import AsyncDispatcher


async def test_a_number_takes_none_ahead_while_two_workers_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the take-over until the old worker has ended its batch and is gone."""
    takes_ahead: asyncio.Queue[bool] = asyncio.Queue()

    class Noting(AsyncDispatcher[Any, Any]):
        """A dispatcher that notes how workers are reported."""

        def worker_ready(self, worker: int, **facts: Any) -> None:
            takes_ahead.put_nowait(facts.get("takes_ahead", False))
            super().worker_ready(worker, **facts)

    monkeypatch.setattr("uncork_gateway.batching.AsyncDispatcher", Noting)
    async with replacing(tmp_path) as on:
        old = await on.worker()
        assert takes_ahead.get_nowait() is True
        asking = on.post("/echo", 0)
        running, _ = await old.batch()
        new = await on.standby(2)
        on.service.take_over([2])
        assert takes_ahead.get_nowait() is False

        old.answer(running, [b"0"])
        assert (await asking).json() == 0
        await old.dropped()
        assert await takes_ahead.get() is True
        _, reply = await on.echo(new, "/echo", 1)
        assert reply.json() == 1
        assert takes_ahead.empty()
