"""Handlers that end only when their clients have left."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from uncork import Service, api, context
from uncork.adapters import Json


class Leaving(Service):
    @api(input=Json())
    def asks(self, rows: list[Any]) -> list[Any]:
        while not context().cancelled:
            time.sleep(0.001)
        return []

    @api(input=Json())
    async def waits(self, rows: list[Any]) -> list[Any]:
        await asyncio.Event().wait()
        return rows

    @api(input=Json(), policy="none")
    async def streams(self, rows: list[Any]) -> AsyncIterator[str]:
        yield "a"
        await asyncio.Event().wait()

    @api(input=Json(), policy="fixed:60000:2")
    def pairs(self, rows: list[Any]) -> list[Any]:
        """Return for each row whether its client is there, once one of two has left."""
        while all(context().live):
            time.sleep(0.001)
        return context().live

    @api(input=Json())
    def ready(self, rows: list[Any]) -> list[Any]:
        return rows
