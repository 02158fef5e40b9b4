"""A model of 1 ms that sums each row of an array, for the requests of a lone client."""

import time
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import NdArray


class Lone(Service):
    @api(input=NdArray(dtype="float32", shape=(4,)))
    def predict(self, rows: np.ndarray[Any, Any]) -> Any:
        """Return the sum of each row."""
        time.sleep(0.001)
        return rows.sum(axis=1)
