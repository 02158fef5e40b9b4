"""A service that is slower than its clients, so that more requests are queued than fit into a batch."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import Json, NdArray


class Doubler(Service):
    """Doubles numbers."""

    @api(input=Json(), mb_max_batch_size=4, mb_max_latency=30_000, idempotent=False)
    def once(self, items: list[int]) -> list[int]:
        """Return twice each number; must not be run twice.

        If ``AHEAD_RUNS`` names a file, the numbers are appended to it first: they outlive a killed worker.
        """
        if runs := os.environ.get("AHEAD_RUNS"):
            with Path(runs).open("a") as file:
                file.write("".join(f"{item}\n" for item in items))
        time.sleep(0.01)
        return [2 * item for item in items]

    @api(input=NdArray(dtype="float64", shape=(None,)), mb_max_batch_size=4, mb_max_latency=30_000)
    def large(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return twice each number of each row."""
        time.sleep(0.01)
        doubled: np.ndarray[Any, Any] = rows * 2
        return doubled
