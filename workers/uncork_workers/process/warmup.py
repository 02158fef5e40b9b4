"""Warm up a worker with the examples of its service before it accepts batches.

The first clients then find a warm model, and the gateway knows how long batches take. APIs take turns, one
size each, so that a slow API leaves time for the others.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.checks import message_of
from uncork_workers.definition.outputs.encoding import row_result
from uncork_workers.definition.service import Service, find_apis
from uncork_workers.plural import plural
from uncork_workers.process.batches.chunks import padded_length, padded_size
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.batches.failures import is_out_of_memory, release
from uncork_workers.process.batches.size_limit import RUNS_PER_SIZE, SizeLimit, WarmUpSizes, doubling
from uncork_workers.process.children import Stopped
from uncork_workers.wire.costs import COST_IN_BYTES, field_cost, rounded_cost
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.messages import Batch, RowResult
from uncork_workers.wire.overrides import Override, with_overrides
from uncork_workers.wire.schema import ApiSettings

log = logging.getLogger("uncork.worker")

Chunks = list[tuple[float, float]]
"""(cost, seconds) of batches, padding included; the cost is the number of rows if the API defines none."""


class WarmupFailed(Exception):
    """A handler failed on its example. The message names the API; the cause is the handler's exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The warm-up example of an API, with the API's effective settings, and its group if it has one."""

    api: str
    sample: Sample
    settings: ApiSettings
    answers_each: bool = False
    group: bytes | None = None

    @property
    def cost(self) -> float | None:
        """The cost of the row, as the gateway computes it; None if the API defines none."""
        match self.settings.cost:
            case str() as cost if cost == COST_IN_BYTES:
                return max(1, len(self.sample.body))
            case str() as field:
                return field_cost(self.sample.body, field)
            case None:
                return None
            case number:
                return rounded_cost(number)

    @property
    def padded_cost(self) -> float:
        """The cost of the row as the model pads it; 1 if the API defines no cost."""
        return padded_length(self.cost or 1, self.settings.allowed_lengths or ())

    def padded_total(self, rows: int) -> float:
        """The cost of a batch of ``rows`` rows as the model pads it; ``rows`` if the API defines no cost."""
        if self.cost is None:
            return rows
        return padded_size(rows, self.settings.allowed_batch_sizes) * self.padded_cost

    def sizes(self) -> list[int]:
        """Return the sizes to run, in rows: powers of two up to the largest batch, or the allowed sizes."""
        settings = self.settings
        fit = settings.limit_rows // self.padded_cost
        fit = min(fit, settings.mb_max_batch_bytes // max(1, len(self.sample.body)))
        most = 1 if settings.policy == "none" else max(1, int(fit))
        sizes = settings.allowed_batch_sizes or doubling(most)
        return list(dict.fromkeys(min(size, most) for size in sizes))

    def batch(self, rows: int) -> Batch:
        """Return a batch of ``rows`` requests of one row."""
        body, meta = self.sample
        cost, limit_rows = self.cost, self.settings.limit_rows
        if cost is not None and rows * self.padded_cost <= limit_rows:
            # As from the gateway: rows that the model truncates count less than their cost.
            limit_rows = max(limit_rows, math.ceil(rows * cost))
        return Batch(
            batch=0,
            api=self.api,
            limit_rows=limit_rows,
            lengths=[len(body)] * rows,
            rows=[1] * rows,
            allowed_batch_sizes=self.settings.allowed_batch_sizes,
            allowed_lengths=self.settings.allowed_lengths or (),
            costs=None if cost is None else [cost] * rows,
            forms=(None if meta is None else RawForm(),),
            metas=None if meta is None else [meta] * rows,
            id="warm-up",
            group=self.group,
        )


def examples_of(service: type[Service], overrides: Sequence[Override]) -> list[Example]:
    """Return the warm-up examples of a service.

    Raises:
        WarmupFailed: if an override of the cost does not fit an example.
    """
    examples = [
        Example(
            api=definition.name,
            sample=definition.sample,
            settings=with_overrides(definition.description, overrides).settings,
            answers_each=definition.description.answers_each,
            group=definition.description.group_of(definition.sample.body),
        )
        for definition in find_apis(service)
        if definition.sample is not None
    ]
    for example in examples:
        try:
            _ = example.cost
        except ValueError as error:
            raise WarmupFailed(
                f"{example.api}: the warm-up example does not fit the API's cost: {error}"
            ) from error
    return examples


def warm_up(
    executor: Executor,
    examples: Sequence[Example],
    *,
    seconds: float,
    on_size: Callable[[str, int], object],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, ApiWarmUp]:
    """Run batches of each example and return the warm-ups by API.

    The smallest size of each API always runs; a larger one only if it is expected to end within ``seconds``
    from the start. ``on_size`` is called before each size, with the API and the number of rows.

    Raises:
        WarmupFailed: if a handler raises.
    """
    ends = clock() + seconds
    warm_ups = [ApiWarmUp(executor, example, on_size, clock) for example in examples]
    unfinished = warm_ups
    while unfinished:
        unfinished = [one for one in unfinished if one.run_next_size(ends)]
    for one in warm_ups:
        one.log_summary()
    return {one.example.api: one for one in warm_ups}


@dataclass(slots=True)
class ApiWarmUp:
    """The warm-up of one API: its batch times, in ``chunks``, and the result for one row if that is text."""

    executor: Executor
    example: Example
    on_size: Callable[[str, int], object]
    clock: Callable[[], float]
    chunks: Chunks = field(default_factory=list)
    result: RowResult | None = None
    took_s: float = 0.0
    sizes: WarmUpSizes = field(init=False)

    def __post_init__(self) -> None:
        halves = not self.example.settings.allowed_batch_sizes
        self.sizes = WarmUpSizes(self.example.sizes(), halves=halves)

    def run_next_size(self, ends: float) -> bool:
        """Run the next size if there is one that should end in time; return whether there was."""
        sizes = self.sizes
        rows = sizes.next(ends - self.clock())
        if rows is None:
            return False
        self.on_size(self.example.api, rows)
        limit = self.executor.limits[self.example.api]
        if sizes.too_large:
            # The limit of the last size would cut this one into calls that are known to fit.
            limit.become(SizeLimit())
        try:
            times = [self._run(rows) for _ in range(RUNS_PER_SIZE)]
        except WarmupFailed as failed:
            if not (sizes.ran and is_out_of_memory(failed)):
                raise
            release(failed)  # smaller sizes follow
            sizes.too_large = rows
            limit.become(SizeLimit(self.example.padded_total(sizes.ran[-1])))
            return True
        self.took_s += sum(times)
        self.chunks.append((self.example.padded_total(rows), min(times)))
        sizes.worked(rows, min(times))
        if sizes.too_large:
            limit.become(SizeLimit(self.example.padded_total(rows)))
        return True

    def log_summary(self) -> None:
        sizes = self.sizes.ran
        rows = plural(sizes[0], "row") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} rows"
        log.info("%s: warmed up with %s in %.1f s", self.example.api, rows, self.took_s)

    def _run(self, rows: int) -> float:
        api, batch = self.example.api, self.example.batch(rows)
        bodies = [self.example.sample.body] * rows
        began = self.clock()
        try:
            results = self.executor.run_example(batch, bodies)
        except Stopped:
            raise
        except BaseException as error:
            raise WarmupFailed(
                f"{api} raised {type(error).__name__} on its warm-up example (rows: {rows}): "
                f"{message_of(error)}"
            ) from error
        took_s = self.clock() - began
        if not self.chunks:
            self.result = row_result(results, answers_each=self.example.answers_each)
        return took_s
