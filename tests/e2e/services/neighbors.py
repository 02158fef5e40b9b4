"""A service for the comparison of rows alone and in batches, with every fault."""

import os
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import File, Json, NdArray, Text, UploadedFile

Array = np.ndarray[Any, Any]
_ROW = NdArray(dtype="float32", shape=(3,))


class Mixed(Service):
    """Rows affect each other, or cannot be judged."""

    @api(input=_ROW, mb_max_batch_size=8, warmup=[0.5, 1.0, 2.0])
    def normalized(self, rows: Array) -> Array:
        """By the largest number of the batch."""
        return np.asarray(rows / rows.max())

    @api(input=_ROW, mb_max_batch_size=8, policy="none", warmup=[0.5, 1.0, 2.0])
    def unmerged(self, rows: Array) -> Array:
        """As above, but requests run alone."""
        return np.asarray(rows / rows.max())

    @api(input=_ROW, mb_max_batch_size=8, warmup=[0.5, 1.0, 2.0])
    def quantized(self, rows: Array) -> Array:
        """In steps of 1 % of the largest number of the batch, plus 1."""
        step = np.abs(rows).max() / 100
        return np.asarray(1 + np.round(rows / step) * step)

    @api(input=_ROW, mb_max_batch_size=8, warmup=[0.5, 1.0, 2.0])
    def ordered(self, rows: Array) -> Array:
        """By size."""
        return np.sort(rows.sum(axis=1))

    @api(input=_ROW, mb_max_batch_size=8, warmup=[0.5, 1.0, 2.0])
    def dropout(self, rows: Array) -> Array:
        """Leaves out a random half."""
        return np.asarray(rows * np.random.default_rng().permuted([0, 1, 2] * len(rows)).reshape(rows.shape))

    @api(input=Json(), mb_max_batch_size=8, warmup={"id": 7})
    def known(self, items: list[dict[str, int]]) -> list[str]:
        """Knows one id."""
        return [{7: "seven"}[item["id"]] for item in items]

    @api(input=Text(), mb_max_batch_size=8, warmup="a text")
    def stacked(self, texts: list[str]) -> Array:
        """Takes texts of one length only."""
        codes = np.stack([np.frombuffer(text.encode(), np.uint8) for text in texts])
        return np.asarray(codes.sum(axis=1))

    @api(input=File(), mb_max_batch_size=8, warmup=b"abc")
    def files(self, files: list[UploadedFile]) -> list[int]:
        """Has an example that is not JSON."""
        return [len(file.data) for file in files]

    @api(input=Json(), mb_max_batch_size=8, warmup=1)
    def deadly(self, items: list[int]) -> list[int]:
        """Ends its worker unless all rows are 1."""
        if set(items) != {1}:
            os._exit(3)
        return items

    @api(input=_ROW, mb_max_batch_size=8, warmup=[0.5, 1.0, 2.0])
    def late(self, rows: Array) -> Array:
        """Comes after the end of the worker."""
        return rows
