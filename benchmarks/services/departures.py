"""Handlers that take some seconds, and notice in different ways that their clients have left."""

import asyncio
import time
from typing import Any

from uncork import Service, api, context
from uncork.adapters import Json

SECONDS = 5.0
STEP_S = 0.01
HELD = "fixed:500:8"

Rows = list[Any]


class Departures(Service):
    """Every API returns its rows; all but ``free`` take five seconds, for up to eight requests."""

    @api(input=Json(), mb_max_latency=30_000, policy=HELD)
    def plain(self, rows: Rows) -> Rows:
        """Do not ask."""
        time.sleep(SECONDS)
        return rows

    @api(input=Json(), mb_max_latency=30_000, policy=HELD)
    def asks(self, rows: Rows) -> Rows:
        """Ask between two steps."""
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends and not context().cancelled:
            time.sleep(STEP_S)
        return rows

    @api(input=Json(), mb_max_latency=30_000, policy=HELD, route="/async")
    async def asynchronous(self, rows: Rows) -> Rows:
        """Await something."""
        await asyncio.sleep(SECONDS)
        return rows

    @api(input=Json(), mb_max_latency=30_000)
    def free(self, rows: Rows) -> Rows:
        """Return at once."""
        return rows
