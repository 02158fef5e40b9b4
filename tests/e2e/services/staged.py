"""A service whose apis can be brought into the situations that /status explains."""

import time
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import Json, NdArray

Rows = np.ndarray[Any, Any]


class Staged(Service):
    """One api for each situation."""

    @api(input=Json(), mb_max_latency=50)
    def unasked(self, items: list[Any]) -> list[Any]:
        """Return the items."""
        return items

    @api(input=NdArray(shape=()), mb_max_latency=5000, mb_max_batch_size=4)
    def capped(self, rows: Rows) -> Rows:
        """Take as long for four rows as for one."""
        time.sleep(0.02)
        return rows

    @api(input=NdArray(shape=()), mb_max_latency=300, mb_max_batch_size=20)
    def loaded(self, rows: Rows) -> Rows:
        """Take 10 ms a row, so that no batch helps."""
        time.sleep(0.01 * len(rows))
        return rows

    @api(input=Json(), cost="bytes", mb_max_latency=5000)
    def padded(self, texts: list[str]) -> list[int]:
        """Take as long as a model that pads all rows to the longest."""
        time.sleep(0.02 + 0.0001 * len(texts) * max(map(len, texts)))
        return [len(text) for text in texts]
