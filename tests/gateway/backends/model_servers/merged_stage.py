"""Merged calls to a fake server; the stage acts as the dispatcher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.dispatcher.batches import batch_of, submitted
from tests.gateway.backends.lines import shout
from tests.gateway.backends.model_servers.fake_server import FakeServer, Script, fake_server
from tests.gateway.backends.model_servers.servers_stage import Slots, assert_no_task_left
from uncork_dispatcher import Batch, BatchResult
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.merged_calls import CallResult, MergedCalls, Sent
from uncork_gateway.backends.model_servers.server import read_addresses
from uncork_gateway.backends.model_servers.servers import Servers

NOW = 1000.0
"""The time on the clock."""


class Stage:
    """A runner, the server that it calls, and the slots.

    Attributes:
        batch: the last batch.
    """

    batch: Batch[Any]

    def __init__(self, merged: MergedCalls, server: FakeServer, slots: Slots) -> None:
        self.merged = merged
        self.server = server
        self.slots = slots

    async def run(self, *batch: Sent) -> BatchResult[CallResult]:
        """Run a batch and return its result.

        Raises:
            Exception: the batch failed.
        """
        outcome = await self.start(*batch)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def start(
        self, *batch: Sent, predicted_s: float = 0.0
    ) -> asyncio.Future[BatchResult[CallResult] | Exception]:
        """Start a batch on the oldest slot, now."""
        slot = self.slots.out[0]
        requests = [submitted(one, rows=one.request.rows) for one in batch]
        ended: asyncio.Future[BatchResult[CallResult] | Exception] = (
            asyncio.get_running_loop().create_future()
        )
        self.batch = batch_of(
            *requests, number=7, worker=slot, api="api", started=NOW, predicted_s=predicted_s
        )
        self.merged.start(self.batch, ended.set_result)
        return ended

    def leave(self) -> None:
        """All clients of the batch leave."""
        self.merged.cancel(self.batch, self.batch.requests)

    @property
    def asked(self) -> list[str]:
        return [call.body.decode() for call in self.server.calls]


@contextlib.asynccontextmanager
async def stage(script: Script = shout, *, idempotent: bool = True, **options: Any) -> AsyncIterator[Stage]:
    """One server with one slot."""
    slots = Slots()
    async with fake_server(script) as server:
        made = http_servers(read_addresses([server.url]), concurrency=1)
        servers = Servers(made, concurrency=1, timeout_s=60, listener=slots, idempotent=idempotent)
        merged = MergedCalls(servers, **{"clock": lambda: NOW} | options)
        servers.start()
        await slots.number(1)
        try:
            yield Stage(merged, server, slots)
        finally:
            await merged.close()
            await servers.close()
            assert_no_task_left()
