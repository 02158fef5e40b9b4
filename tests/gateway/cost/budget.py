"""The declared budget of what the input of a client may cost, and the counters that check it.

Bytecodes, the instructions of Python's virtual machine, are counted with a trace function, and memory with
tracemalloc. Both are exact, need no other program, and depend neither on the speed nor on the load of the
machine, so each test run can afford many inputs. Time is never measured. Neither sees the work of C code,
such as a search that compares all with all.

The bytes of an input are those that come over the network, with 40 bytes of TCP and IP for each piece. A
compressed body counts also as it is after decompression.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple, Self

HEAD_BYTES_OF_PIECE = 40


class Budget(NamedTuple):
    """At most ``each`` for each request, and ``per_byte`` for each byte."""

    each: int
    per_byte: int

    def of(self, size: int, requests: int = 1) -> int:
        return self.each * requests + self.per_byte * size


BYTECODES = Budget(160_000, 160)
"""The most expensive requests are the page /openapi.json, and a gRPC head of 468 fields of one byte each."""
PEAK_BYTES = Budget(4 * 2**20, 96)
"""The most memory at a time. Above a body of 1 MiB, limits on rows, values and fields leave far less."""
HELD_BYTES = Budget(2 * 2**20, 32)
"""The memory of a queued request, and of an open connection. 1 MiB is for names that each row repeats."""
KEPT_BYTES = 256 * 1024
"""What is left of a connection that has closed: caches, which are bounded."""

_NOT_COUNTED = ("/tests/", "/asyncio/")


class Bytecodes:
    """Counts the bytecodes that run in a block, without tests and the event loop."""

    def __init__(self) -> None:
        self.bytecodes = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if any(part in frame.f_code.co_filename for part in _NOT_COUNTED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.bytecodes += 1
        return self._count
