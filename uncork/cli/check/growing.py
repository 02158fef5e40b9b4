"""Run growing batches of an API, and measure their time and memory."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from uncork.cli.check.figures import Failure, Times
from uncork_gateway.backends.worker_connection import Executed
from uncork_loadtests.tuning.batch_times import SizeTime, fit
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.memory import resident_bytes
from uncork_workers.process.batches.chunks import padded_length
from uncork_workers.process.warmup import Example
from uncork_workers.wire.messages import Batch, ExceptionReport

Stages = tuple[float, float, float] | None
Run = Callable[[Batch, Sequence[bytes]], Awaitable[tuple[Executed, float]]]

# The first run of a size warms up and does not count.
_RUNS_OF_A_SIZE = 3
_MOST_OF_FREE = 0.8
_FIRST_SERVER_ERROR = 500
# Smaller growth may be noise of the allocator.
_LEAST_GROWTH_BYTES = 8 * 2**20


class Refused(Exception):
    """The handler rejected the example; the message has its answer."""


class Failed(Exception):
    """The handler failed to answer; the message is a verb phrase."""


class Died(Failed):
    """The worker ended during a batch."""

    def __str__(self) -> str:
        return "kills the worker process"


class OutOfMemory(Exception):
    """The size does not fit into memory, but smaller calls answered the batch.

    Args:
        limit: the size that fits, if the worker knows it.
    """

    def __init__(self, limit: float | None) -> None:
        super().__init__()
        self.limit = limit

    def __str__(self) -> str:
        return "runs out of memory"


class Unknown(Exception):
    """The API cannot be measured; the message says why."""


@dataclass(frozen=True)
class Batches:
    """Batches of an example, and the function that runs one."""

    example: Example
    run: Run

    @property
    def sizes(self) -> list[int]:
        """Sizes in rows, rising; with the policy ``none`` as if requests were merged."""
        example, settings = self.example, self.example.settings
        if settings.policy == "none":
            merging = msgspec.structs.replace(settings, policy="cork")
            return replace(example, settings=merging).sizes()
        return example.sizes()

    async def once(self, rows: int) -> tuple[Executed, float]:
        """Run one batch of copies; return its reply and the seconds until the reply.

        Raises:
            Refused, Failed, TimeoutError: as :meth:`of`.
        """
        return await self.of([self.example.sample.body] * rows)

    async def of(self, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        """Run one batch of rows; return its reply and the seconds until the reply.

        Raises:
            Refused: if the handler rejects one.
            Failed: if the handler fails.
            TimeoutError: if it exceeds the API's timeout.
            OutOfMemory: if it ran in smaller calls for lack of memory.
        """
        batch, costs = self.example.batch(len(bodies)), self._costs(bodies)
        batch = msgspec.structs.replace(
            batch,
            # A batch that fits is one call, also if the model truncates rows.
            limit_rows=max(batch.limit_rows, math.ceil(sum(costs or ()))),
            lengths=[*map(len, bodies)],
            costs=costs,
            pads=bool(self.example.settings.allowed_lengths),
            timeout_s=self.example.settings.timeout,
        )
        async with asyncio.timeout(self.example.settings.timeout):
            executed, seconds = await self.run(batch, bodies)
        reply = executed.reply
        if {*reply.statuses} == {200}:
            size = self._size(len(bodies), costs)
            if reply.memory_failures or (reply.limit is not None and reply.limit < size):
                raise OutOfMemory(reply.limit)
        _check_answered(executed)
        return executed, seconds

    def fit(self, bodies: Sequence[bytes]) -> bool:
        """Return whether one call of the handler may have these rows."""
        try:
            costs = self._costs(bodies)
        except ValueError:
            return False
        settings = self.example.settings
        size = self._size(len(bodies), costs)
        return size <= settings.limit_rows and sum(map(len, bodies)) <= settings.mb_max_batch_bytes

    def _size(self, rows: int, costs: Sequence[float] | None) -> float:
        """Return the size of a call: in cost, padding included if the API lists the lengths of rows."""
        if costs is None:
            return rows
        lengths = self.example.settings.allowed_lengths
        return rows * padded_length(max(costs), lengths) if lengths else sum(costs)

    def _costs(self, bodies: Sequence[bytes]) -> list[float] | None:
        """Return the cost of each row; None if the API defines none."""
        if self.example.cost is None:
            return None
        costs = {body: replace(self.example, sample=Sample(body)).cost or 1 for body in set(bodies)}
        return [costs[body] for body in bodies]

    async def times(self, rows: int) -> tuple[SizeTime, float, Stages]:
        """Run batches of one size; return their times in the worker, the median overhead in milliseconds, and
        the stages of the last.

        Raises:
            Refused, Failed, TimeoutError, OutOfMemory: as :meth:`once`.
        """
        runs = [await self.once(rows) for _ in range(_RUNS_OF_A_SIZE)]
        seen = [(executed.reply.seconds * 1000, seconds * 1000) for executed, seconds in runs[1:]]
        inside = tuple(one for one, _ in seen)
        overhead = median(max(0.0, whole - one) for one, whole in seen)
        size = int(rows * self.example.padded_cost)
        return (
            SizeTime(rows=max(1, size), median_ms=median(inside), times_ms=inside),
            overhead,
            runs[-1][0].reply.stages_s,
        )


def _check_answered(executed: Executed) -> None:
    """Check that the handler answered each request of a batch in one call."""
    reply = executed.reply
    if reply.exceptions:
        raise Failed(_raises(reply.exceptions[0]))
    if bad := [number for number, one in enumerate(reply.statuses) if one != 200]:
        status, reason = reply.statuses[bad[0]], executed.bodies[bad[0]].decode(errors="replace")
        if status >= _FIRST_SERVER_ERROR:
            raise Failed(f"returns status {status}: {reason}")
        raise Refused(f"status {status}: {reason}")


def _raises(raised: ExceptionReport) -> str:
    said = f": {' '.join(raised.message.split())}" if raised.message else ""
    place = f" ({raised.place})" if raised.place else ""
    return f"raises {raised.error}{said}{place}"


async def grow(
    batches: Batches, *, seconds: float, pid: int, free_bytes: int | None
) -> tuple[Times, Failure | None]:
    """Run growing sizes until time or memory may not suffice for the next, or one fails.

    Returns the times, and the failure that ended the growth, if one did.

    Raises:
        Refused, Failed, TimeoutError: of the smallest size; of a larger one, it ends the growth.
    """
    ends = time.perf_counter() + seconds
    base = resident_bytes(pid)
    most_growth = math.inf if free_bytes is None else _MOST_OF_FREE * free_bytes
    sizes: list[SizeTime] = []
    peaks: list[tuple[int, int]] = []
    overheads_ms: list[float] = []
    failure, stages_s = None, None
    fits = math.inf
    for rows in batches.sizes:
        began = time.perf_counter()
        reset_peak(pid)
        try:
            size, overhead_ms, stages_s = await batches.times(rows)
        except (Refused, Failed, TimeoutError) as error:
            if not sizes:
                raise
            failure = Failure(rows=rows, says=str(error)) if isinstance(error, Failed) else None
            break
        except OutOfMemory as error:
            if not sizes:
                raise Failed(str(error)) from None
            fits = await _what_fits(batches, rows) or sizes[-1].rows
            break
        sizes.append(size)
        overheads_ms.append(overhead_ms)
        peaks.append((size.rows, peak_bytes(pid) or base))
        now = time.perf_counter()
        if now + 2 * (now - began) > ends or 2 * (peaks[-1][1] - base) > most_growth:
            break
    times = Times(
        sizes=tuple(sizes),
        line=fit(sizes),
        overhead_ms=overheads_ms[0],
        row_bytes=len(batches.example.sample.body),
        memory_per_row_bytes=growth_per_row(peaks),
        fits=fits,
        stages_s=stages_s,
    )
    return times, failure


async def _what_fits(batches: Batches, rows: int) -> float | None:
    """Run a size that is too large until the worker has learned what fits; return that if it is known."""
    limit = None
    for _ in range(_RUNS_OF_A_SIZE):
        try:
            await batches.once(rows)
        except OutOfMemory as error:
            limit = error.limit
        except (Refused, Failed, TimeoutError):
            break  # the last size that worked is known to fit
    return limit


def of_profile(profile: Sequence[tuple[float, float]]) -> Times:
    """Return the times that the worker measured during its warm-up; raise Unknown if it measured none."""
    if not profile:
        raise Unknown("the API has no example, and none can be generated from its input")
    sizes = tuple(
        SizeTime(rows=max(1, int(weight)), median_ms=seconds * 1000, times_ms=(seconds * 1000,))
        for weight, seconds in sorted(profile)
    )
    return Times(sizes=sizes, line=fit(sizes))


def growth_per_row(peaks: Sequence[tuple[int, int]]) -> float | None:
    """Return the slope of peak memory over size; None if the peaks hardly grow."""
    if len(peaks) < 3 or peaks[-1][1] - peaks[0][1] < _LEAST_GROWTH_BYTES:
        return None
    sizes, bytes_ = zip(*peaks, strict=True)
    slope, _ = np.polyfit(sizes, bytes_, 1)
    return float(slope) if slope > 0 else None


def reset_peak(pid: int) -> None:
    """Reset the peak of a process's memory, where the system supports it."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int | None:
    """Return the peak of a process's resident memory; None if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 if found else None
