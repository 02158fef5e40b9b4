"""Services to be checked: without fault, with several, and with rows that affect each other."""

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import File, Json, NdArray, Text, UploadedFile
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


class Short(Service):
    """Has memory for two rows."""

    @api(input=Json(), mb_max_batch_size=4, warmup=1)
    def predict(self, items: list[Any]) -> list[Any]:
        """Of up to four."""
        if len(items) > 2:
            raise MemoryError
        time.sleep(0.01)
        return items


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

    @api(input=Json(), mb_max_batch_size=8, group_by="scale", warmup={"scale": 2, "x": 1.5})
    def grouped(self, items: list[dict[str, float]]) -> list[float]:
        """Takes what all rows of a batch share from the first."""
        return [item["x"] * items[0]["scale"] for item in items]

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
