"""A service that returns its input, an array, to compare protocols."""

import os
import time
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import NdArray


class Arrays(Service):
    """Takes ARRAYS_INTERCEPT_MS + ARRAYS_SLOPE_MS * rows milliseconds for a batch; by default no time."""

    def setup(self) -> None:
        """Read the times of a batch."""
        self.intercept_ms = float(os.environ.get("ARRAYS_INTERCEPT_MS", "0"))
        self.slope_ms = float(os.environ.get("ARRAYS_SLOPE_MS", "0"))

    @api(input=NdArray(dtype="float32", shape=(None,)))
    def echo(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the batch unchanged."""
        if self.intercept_ms or self.slope_ms:
            time.sleep((self.intercept_ms + self.slope_ms * len(rows)) / 1000)
        return rows
