"""A model with room for ROOM rows, in memory that is freed when nothing refers to it, as that of a GPU is."""

import os
import signal
import time
from typing import Any

from uncork import Service, api
from uncork.adapters import Json

ROOM = int(os.environ.get("ROOM", "31"))
INTERCEPT_S, SLOPE_S = 0.005, 0.0001


class Tensor:
    """Rows on the device."""

    used = 0

    def __init__(self, rows: int) -> None:
        self.rows = 0
        if Tensor.used + rows > ROOM:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        self.rows = rows
        Tensor.used += rows

    def __del__(self) -> None:
        Tensor.used -= self.rows


class ShortOfMemory(Service):
    """Doubles numbers, in 5 ms and 0.1 ms for each."""

    @api(input=Json(), warmup=1)
    def warm(self, numbers: list[Any]) -> list[Any]:
        return self.double(numbers)

    @api(input=Json())
    def double(self, numbers: list[Any]) -> list[Any]:
        half = Tensor(len(numbers) // 2)
        rest = Tensor(len(numbers) - half.rows)
        time.sleep(INTERCEPT_S + SLOPE_S * (half.rows + rest.rows))
        return [2 * number for number in numbers]

    @api(input=Json())
    def lethal(self, numbers: list[Any]) -> list[Any]:
        """The kernel kills the process instead."""
        if len(numbers) > ROOM:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(INTERCEPT_S)
        return [2 * number for number in numbers]

    @api(input=Json())
    def allocate(self, numbers: list[Any]) -> list[Any]:
        """Take 20 MiB for each."""
        memory = bytearray(len(numbers) * 20 * 2**20)
        return [2 * number for number in numbers if memory]
