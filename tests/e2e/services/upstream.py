"""An API of which a worker runs several batches at once, and others beside it."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from uncork import Service, api
from uncork.adapters import Json


class Upstream(Service):
    def setup(self) -> None:
        self.go = asyncio.Event()

    @api(input=Json(), concurrency=4, mb_max_batch_size=1, mb_max_latency=60_000, timeout=20)
    async def fetch(self, rows: list[Any]) -> list[Any]:
        """Return the rows; when ``open`` is called in this worker, if they begin with "wait"."""
        if str(rows[0]).startswith("wait"):
            await self.go.wait()
        return rows

    @api(input=Json(), concurrency=2, timeout=0.2)
    async def slow(self, rows: list[Any]) -> list[Any]:
        await asyncio.Event().wait()
        return rows

    @api(input=Json(), policy="none", concurrency=2)
    async def stream(self, rows: list[Any]) -> AsyncIterator[Any]:
        yield str(rows[0])
        await self.go.wait()
        for row in rows * 2:
            yield str(row)

    @api(input=Json())
    async def open(self, rows: list[Any]) -> list[Any]:
        self.go.set()  # for those that wait now
        self.go.clear()
        return rows

    @api(input=Json())
    def pid(self, rows: list[Any]) -> list[Any]:
        return [os.getpid() for _ in rows]
