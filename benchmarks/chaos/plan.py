"""When which fault strikes: a function of the seed and nothing else."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from benchmarks.chaos.faults import Fault

SETTLE_S = 6.0
"""Before the end of the load nothing strikes for so long, for a stopped worker to be replaced under load."""
_START_S = 1.0


class Strike(NamedTuple):
    """One injection; its own details are drawn from its own seed."""

    at_s: float
    fault: Fault
    seed: int


def plan_strikes(faults: Sequence[Fault], *, seconds: float, seed: int) -> list[Strike]:
    """All strikes within ``seconds``, in their order; each fault that returns strikes at least once.

    A fault comes at the same times whichever others are asked for.
    """
    strikes = [
        Strike(at_s, fault, details)
        for fault in faults
        if fault.every_s
        for at_s, details in _strikes_of(fault, seconds=seconds, seed=seed)
    ]
    return sorted(strikes, key=lambda strike: strike.at_s)


def _strikes_of(fault: Fault, *, seconds: float, seed: int) -> Iterator[tuple[float, int]]:
    random = Random(f"{seed} {fault.name}")
    last_s = max(_START_S, seconds - SETTLE_S)
    at_s = _START_S + random.random() * min(fault.every_s, last_s - _START_S)
    while at_s <= last_s:
        yield at_s, random.getrandbits(32)
        at_s += fault.every_s * random.uniform(0.5, 1.5)
