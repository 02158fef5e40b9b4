"""Two services to be checked: one without fault, and one with several."""

import time
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import File, Json, NdArray, UploadedFile

MIB = 2**20


class Fine(Service):
    """A batch takes 10 ms, whatever is in it."""

    @api(input=NdArray(dtype="float32", shape=(2,)), mb_max_batch_size=16, warmup=[1, 2])
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Sums."""
        time.sleep(0.01)
        return np.asarray(rows.sum(axis=1))

    @api(input=File(), mb_max_batch_size=4, warmup=b"abc")
    def lengths(self, files: list[UploadedFile]) -> list[int]:
        """Of files, whose example only the worker has."""
        time.sleep(0.01)
        return [len(file.data) for file in files]


class Faulty(Service):
    """Late, large, picky."""

    @api(input=NdArray(dtype="float32", shape=(2,)), mb_max_latency=5, mb_max_batch_size=4)
    def late(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Takes longer than its goal."""
        time.sleep(0.02)
        return np.asarray(rows.sum(axis=1))

    @api(input=Json(), mb_max_batch_size=64, warmup=1, mb_max_batch_bytes=2**20)
    def large(self, items: list[int]) -> list[int]:
        """A row takes 2 MiB while it runs, and 2 ms."""
        blocks = np.ones((len(items), 2 * MIB), dtype=np.uint8)
        time.sleep(0.002 * len(items))
        return [int(block[0]) for block in blocks]

    @api(input=Json())
    def picky(self, items: list[Any]) -> list[Any]:
        """Whatever can be made up is wrong."""
        return [item["who knows"] for item in items]
