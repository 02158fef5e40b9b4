"""Services to be checked: one without fault, one with several, and one whose handlers fail."""

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import File, Json, NdArray, UploadedFile
from uncork.outputs import Rejected

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
        """Whatever can be made up is refused."""
        return [Rejected(422, "this is not it")] * len(items)


class Raising(Service):
    """Each handler fails in its own way."""

    @api(input=Json())
    def always(self, items: list[Any]) -> list[Any]:
        """On every row."""
        return [item["who knows"] for item in items]

    @api(input=Json())
    def in_company(self, items: list[Any]) -> list[Any]:
        """On several rows: it was written for one."""
        return items[:1]

    @api(input=Json(), policy="none")
    def streamed(self, items: list[Any]) -> Iterator[str]:
        """Before its first piece."""
        yield str(items[0]["who knows"])

    @api(input=Json(), policy="none")
    def fine(self, items: list[Any]) -> Iterator[str]:
        """It would stream for ever."""
        while True:
            yield "."
            time.sleep(0.001)

    @api(input=Json())
    def deadly(self, items: list[Any]) -> list[Any]:
        """By the end of its worker."""
        os._exit(3)
