"""What a worker does before it takes batches: it runs some of the examples that its service gives.

The model is warm then, and it is known how long batches take before the first client comes. Apis take turns,
a size each, so that a slow one leaves time to the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.outputs import row_result
from uncork_workers.definition.service import Service, find_apis
from uncork_workers.plural import plural
from uncork_workers.process.execution import Executor
from uncork_workers.wire.messages import Batch, RawForm, RowResult
from uncork_workers.wire.overrides import Override, with_overrides
from uncork_workers.wire.schema import COST_IN_BYTES, ApiSettings, field_cost, rounded_cost

log = logging.getLogger("uncork.worker")

Chunks = list[tuple[float, float]]
"""What batches weighed (their rows, if the api gives no cost), and the seconds that they took."""

# The first call pays for what is made lazily, and where models are compiled for a size, the first of that
# size does; any may be disturbed. So the quickest counts.
_RUNS_OF_A_SIZE = 2


class WarmupFailed(Exception):
    """A handler raised on its example. The message names the api, the cause is what was raised."""


class Rehearsed(NamedTuple):
    """What was learned of one api: how long batches took, and the result for a row if it is JSON."""

    chunks: Chunks
    result: RowResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What an api is warmed up with, and the settings that are in force for it.

    ``answers_each`` is that of its description.
    """

    api: str
    sample: Sample
    settings: ApiSettings
    answers_each: bool = False

    @property
    def cost(self) -> float | None:
        """What the row weighs, as the gateway would weigh it; None if the api gives no cost."""
        match self.settings.cost:
            case str() as cost if cost == COST_IN_BYTES:
                return max(1, len(self.sample.body))
            case str() as field:
                return field_cost(self.sample.body, field)
            case None:
                return None
            case number:
                return rounded_cost(number)

    def sizes(self) -> list[int]:
        """Rows of the batches to run, rising: 1, 2, 4 and so on, and the most that a batch can have.

        Where only some sizes are allowed it is those, as far as batches can be so large.
        """
        settings = self.settings
        fit = settings.limit_rows // (self.cost or 1)
        fit = min(fit, settings.mb_max_batch_bytes // max(1, len(self.sample.body)))
        most = 1 if settings.policy == "none" else max(1, int(fit))
        doubling = [2**power for power in range(most.bit_length() + 1)]
        sizes = settings.allowed_batch_sizes or doubling
        return list(dict.fromkeys(min(size, most) for size in sizes))

    def batch(self, rows: int) -> Batch:
        """A batch of so many requests of one row."""
        body, meta = self.sample
        cost = self.cost
        return Batch(
            batch=0,
            api=self.api,
            limit_rows=self.settings.limit_rows,
            lengths=[len(body)] * rows,
            rows=[1] * rows,
            allowed_batch_sizes=self.settings.allowed_batch_sizes,
            costs=None if cost is None else [cost] * rows,
            forms=(None if meta is None else RawForm(),),
            metas=None if meta is None else [meta] * rows,
            id="warm-up",
        )


def examples_of(service: type[Service], overrides: Sequence[Override]) -> list[Example]:
    """What the apis of a service give as ``warmup``, under the settings in force.

    Raises:
        WarmupFailed: if an example cannot be weighed under them.
    """
    examples = [
        Example(
            api=definition.name,
            sample=definition.sample,
            settings=with_overrides(definition.description, overrides).settings,
            answers_each=definition.description.answers_each,
        )
        for definition in find_apis(service)
        if definition.sample is not None
    ]
    for example in examples:
        try:
            _ = example.cost
        except ValueError as error:
            raise WarmupFailed(
                f"{example.api}: its example does not fit the cost in force: {error}"
            ) from error
    return examples


def warm_up(
    executor: Executor,
    examples: Sequence[Example],
    *,
    seconds: float,
    tell: Callable[[str, int], object],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Rehearsed]:
    """Run batches of each example; what was learned, by api.

    Of each at least the smallest size is run; a larger one only if it can be expected to end before
    ``seconds`` have passed in all. ``tell`` is called before each with the api and the rows.

    Raises:
        WarmupFailed: if a handler raises.
    """
    ends = clock() + seconds
    every = [_WarmingUp(executor, example, tell, clock) for example in examples]
    waiting = every
    while waiting:
        waiting = [one for one in waiting if one.next_size(ends)]
    for one in every:
        one.report()
    return {one.api: Rehearsed(one.chunks, one.result) for one in every}


class _WarmingUp:
    """One api on its way from size to size."""

    def __init__(
        self,
        executor: Executor,
        example: Example,
        tell: Callable[[str, int], object],
        clock: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._example = example
        self._tell = tell
        self._clock = clock
        self._sizes = example.sizes()
        self._done: list[int] = []
        self._took_s = 0.0
        self.api = example.api
        self.chunks: Chunks = []
        self.result: RowResult | None = None

    def next_size(self, ends: float) -> bool:
        """Run the next size, unless there is none or it would not end in time; whether it ran."""
        if len(self._done) == len(self._sizes):
            return False
        rows = self._sizes[len(self._done)]
        if self._done:
            # At worst time grows as the rows do.
            expected_s = _RUNS_OF_A_SIZE * self.chunks[-1][1] * rows / self._done[-1]
            if self._clock() + expected_s > ends:
                return False
        self._tell(self.api, rows)
        times = [self._run(rows) for _ in range(_RUNS_OF_A_SIZE)]
        self._done.append(rows)
        self._took_s += sum(times)
        self.chunks.append((rows * (self._example.cost or 1), min(times)))
        return True

    def report(self) -> None:
        """Say in the log what was done."""
        first, *_, last = (self._done[0], *self._done)
        sizes = f"{first} .. {last} rows" if last > first else plural(last, "row")
        log.info("%s: warmed up with %s in %.1f s", self.api, sizes, self._took_s)

    def _run(self, rows: int) -> float:
        batch = self._example.batch(rows)
        bodies = [self._example.sample.body] * rows
        began = self._clock()
        try:
            results = self._executor.rehearse(batch, bodies)
        except (Exception, SystemExit) as error:
            raise WarmupFailed(
                f"{self.api} raised {type(error).__name__} on its example (rows: {rows}): {error}"
            ) from error
        took_s = self._clock() - began
        if not self._done and not self._example.answers_each:
            self.result = row_result(results)
        return took_s
