"""A service with an API whose batches wait for a gate, and one whose batches do not."""

import os
import time
from pathlib import Path
from typing import Any

from uncork import Service, api
from uncork.adapters import Json


class Gated(Service):
    @api(input=Json(), mb_max_batch_size=1)
    def slow(self, rows: list[int]) -> list[int]:
        """Waits until someone writes to the pipe that ``GATE`` names."""
        Path(os.environ["GATE"]).read_text()
        return rows

    @api(input=Json(), workers=1)
    def fast(self, rows: list[int]) -> list[int]:
        return rows


class Coalescing(Service):
    @api(input=Json(), coalesce=True, mb_max_latency=60_000)
    def gated(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Double each number, once the files of the rows exist."""
        while not all(Path(row["gate"]).exists() for row in rows):
            time.sleep(0.005)
        return [2 * row["number"] for row in rows]
