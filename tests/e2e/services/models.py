"""A service that other protocols know as models; it holds a little, so that callers meet in batches."""

from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import Json, NdArray


class Models(Service):
    """Numbers and texts."""

    @api(
        input=NdArray(dtype="float32", shape=(3,)),
        policy="fixed:100",
        mb_max_latency=10_000,
        warmup=[1, 2, 3],
        mb_max_batch_size=32,
    )
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Twice each row, whose values are exact in 32 bits."""
        doubled: np.ndarray[Any, Any] = rows * 2
        return doubled

    @api(input=NdArray(dtype="float32", shape=(None,)), mb_max_latency=10_000)
    def sums(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The sum of each row, which may be of any length."""
        summed: np.ndarray[Any, Any] = rows.sum(axis=1)
        return summed

    @api(input=Json(), policy="fixed:30", mb_max_latency=10_000)
    def texts(self, items: list[Any]) -> list[Any]:
        """What each item is, and its length as text."""
        return [{"item": item, "length": len(str(item))} for item in items]
