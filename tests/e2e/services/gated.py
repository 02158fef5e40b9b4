"""A service with an API whose batches wait for a gate, and one whose batches do not."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import Json, NdArray


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
    """The result of each handler depends on its rows only."""

    @api(input=Json(), coalesce=True, mb_max_latency=60_000)
    def gated(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Double each number, once the files of the rows exist."""
        while not all(Path(row["gate"]).exists() for row in rows):
            time.sleep(0.005)
        return [2 * row["number"] for row in rows]

    @api(input=NdArray(dtype="int64", shape=(1,)), coalesce=True, mb_max_latency=60_000)
    def slow(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Double each number, slowly enough that requests gather."""
        time.sleep(0.05)
        doubled: np.ndarray[Any, Any] = 2 * rows
        return doubled
