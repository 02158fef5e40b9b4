"""How the lengths of bodies affect batch times: batches of short, of long and of mixed bodies.

One long body among short ones shows whether a model pads a batch to its longest row: if it does, the batch
takes about as long as one of long bodies only.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import msgspec
import numpy as np

from uncork_dispatcher.advice import Advice, advise
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.samples import Samples, long_from
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.payloads import sample_bodies
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.tuning.batch_times import drive

COST_IN_BYTES = "bytes"

_REQUESTS = 8
# At most four: after five batches with padding, the gateway may keep different lengths apart.
_ROUNDS = 3
# Batches of long bodies must take this many times as long; less may be noise.
_LONGER = 1.2
_DRAWS = 1000
# A field is the cost if it has this share of the difference between two rows.
_MOST_OF_IT = 0.8


class Unmeasured(Exception):
    """The effect of lengths cannot be measured; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Batch times of bodies of different lengths. Each batch has the same number of requests."""

    requests: int
    """Requests in each batch."""
    short_bytes: int
    long_bytes: int
    short_ms: float
    """Median time of batches of short bodies."""
    long_ms: float
    """Median time of batches of long bodies."""
    mixed_ms: float
    """Median time of batches with one long body; the others are short."""
    depends: bool
    """Whether longer bodies take longer."""
    pads: bool
    """Whether a batch takes as long as if all its bodies were as long as the longest."""
    padding: float
    """Share of padding in batches of that many requests in random order, counted in bytes."""
    cost: str
    """The ``cost`` for ``@api`` that is closest to the length of a row."""


def findings(seen: Lengths, *, has_cost: bool) -> list[Advice]:
    """Return the effect of lengths, and what to set if the API has no cost."""
    effect = "padded" if seen.pads else "summed" if seen.depends else "irrelevant"
    found = [
        advise(
            f"lengths-{effect}",
            requests=seen.requests,
            short=seen.short_bytes,
            long=seen.long_bytes,
            short_s=seen.short_ms / 1000,
            long_s=seen.long_ms / 1000,
            mixed_s=seen.mixed_ms / 1000,
            padding=seen.padding,
        )
    ]
    if seen.depends and not has_cost:
        found.append(advise("give_cost", cost=seen.cost, setting="mb_max_batch_size"))
    return found


def measure(plan: Plan, *, largest: int, tell: Callable[[str], None]) -> Lengths | None:
    """Measure batches of short, long and mixed bodies; None if no body is twice as long as another.

    The server's policy must hold requests, as for :func:`batch_times.measure`.

    Raises:
        Unmeasured: if a batch fails, or does not have all requests.
        BenchError: if the server cannot be reached, or a body cannot be made.
    """
    try:
        bodies = sorted(sample_bodies(plan.payload), key=len)
    except ValueError as error:
        raise BenchError(str(error)) from None
    from_bytes = long_from(np.array([len(body) for body in bodies]))
    requests = min(_REQUESTS, largest)
    if from_bytes is None or requests < 2:
        return None
    short, long = bodies[len(bodies) // 10], next(body for body in bodies if len(body) >= from_bytes)
    mixes = {
        "short": (short,) * requests,
        "long": (long,) * requests,
        "mixed": (long, *(short,) * (requests - 1)),
    }
    times: dict[str, list[float]] = {kind: [] for kind in mixes}
    for number in range(_ROUNDS + 1):
        for kind, mix in mixes.items():
            tell(f"measuring batches of {kind} bodies")
            one = replace(plan, payload=Payload(bodies=mix))
            if number or kind != "mixed":  # the first batches of a length warm up
                times[kind].append(_one_batch(one, requests))
    seen = {kind: some[-_ROUNDS:] for kind, some in times.items()}
    depends, pads = judge(seen["short"], seen["long"], seen["mixed"], requests=requests)
    return Lengths(
        requests=requests,
        short_bytes=len(short),
        long_bytes=len(long),
        short_ms=median(seen["short"]),
        long_ms=median(seen["long"]),
        mixed_ms=median(seen["mixed"]),
        depends=depends,
        pads=pads,
        padding=padding_in([len(body) for body in bodies], requests=requests),
        cost=cost_of(short, long),
    )


def _one_batch(plan: Plan, requests: int) -> float:
    samples, fault = drive(plan, requests, batches=1)
    sizes = sorted({len(body) for body in plan.payload.bodies})
    what = f"{plural(requests, 'request')} of {' and '.join(map(str, sizes))} bytes"
    if fault:
        raise Unmeasured(f"{what} failed: {fault}")
    if not _is_one_batch(samples, requests):
        raise Unmeasured(f"{what} did not run as one batch of one row each")
    return float(samples["batch_ms"][0])


def _is_one_batch(samples: Samples, requests: int) -> bool:
    return bool((samples["batch_rows"] == requests).all() and len(np.unique(samples["batch_ms"])) == 1)


def judge(
    short_ms: Sequence[float], long_ms: Sequence[float], mixed_ms: Sequence[float], *, requests: int
) -> tuple[bool, bool]:
    """Return whether batch times depend on lengths, and whether the model pads.

    A batch with one long body takes ``1 / requests`` of the way from short to long if times follow the sum of
    the lengths, and all of it if the model pads.
    """
    short, long, mixed = median(short_ms), median(long_ms), median(mixed_ms)
    depends = min(long_ms) > _LONGER * max(short_ms)
    between = (1 + 1 / requests) / 2
    return depends, depends and mixed - short > between * (long - short)


def padding_in(sizes: Sequence[int], *, requests: int) -> float:
    """Return the mean share of padding in batches of random bodies of these lengths."""
    draw = random.Random(1)
    batches = [draw.choices(sizes, k=requests) for _ in range(_DRAWS)]
    return 1 - sum(map(sum, batches)) / sum(requests * max(batch) for batch in batches)


def cost_of(short: bytes, long: bytes) -> str:
    """Return the field that makes up the difference in length of two JSON objects, or "bytes"."""
    try:
        rows = [msgspec.json.decode(body) for body in (short, long)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return COST_IN_BYTES
    if not all(isinstance(row, dict) for row in rows):
        return COST_IN_BYTES
    fewer, more = rows
    grown = {name: _bytes(value) - _bytes(fewer.get(name)) for name, value in more.items()}
    name = max(grown, key=grown.__getitem__, default="")
    is_it = name in fewer and grown[name] >= _MOST_OF_IT * (_bytes(more) - _bytes(fewer))
    return name if is_it and len(more) > 1 else COST_IN_BYTES


def _bytes(value: Any) -> int:
    return len(msgspec.json.encode(value)) if isinstance(value, str | list | dict) else 0
