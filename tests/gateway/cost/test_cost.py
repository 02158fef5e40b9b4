"""No input of a client costs more than the declared budget; see :mod:`tests.gateway.cost.budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random

import pytest

from tests.gateway.cost import grpc_inputs, http_inputs
from tests.gateway.cost.budget import (
    BYTECODES,
    HELD_BYTES,
    KEPT_BYTES,
    PEAK_BYTES,
)
from tests.gateway.cost.http_inputs import Input
from tests.gateway.cost.stage import Cost, stage
from tests.loops import SteppedLoop, run

INPUTS: Mapping[str, Mapping[str, Callable[[int], Input]]] = {
    "http": http_inputs.INPUTS,
    "grpc": grpc_inputs.INPUTS,
}
_SEEDS = 300
_PIECES = (1, 9, 100, 1448, 16_384, 262_144)
_MOST_PIECES = 2000


def over_budget(sent: Input, cost: Cost) -> list[str]:
    """Return the parts of the budget that were exceeded."""
    limits = {
        "bytecodes": BYTECODES.of(cost.size, sent.requests),
        "peak": PEAK_BYTES.of(cost.size),
        "held": HELD_BYTES.of(cost.size),
        "kept": KEPT_BYTES,
    }
    return [
        f"{getattr(cost, what)} {what}, more than {most}, for {cost.size} bytes"
        for what, most in limits.items()
        if getattr(cost, what) > most
    ]


async def faults(protocol: str, inputs: Iterable[tuple[str, Input]]) -> list[str]:
    """Send inputs to a gateway, and return the faults of each."""
    found = []
    async with stage() as on:
        for name, sent in inputs:
            cost = await on.cost(protocol, sent)
            found += [f"{name}: {fault}" for fault in over_budget(sent, cost)]
    return found


def sized(protocol: str, sizes: Sequence[int]) -> Iterator[tuple[str, Input]]:
    for name, make in INPUTS[protocol].items():
        for times in sizes:
            yield f"{name} x{times}", make(times)


def drawn(protocol: str, random: Random) -> tuple[str, Input]:
    """Return an input of random size, of which some bytes are changed, in pieces of random size."""
    name, times = random.choice([*INPUTS[protocol]]), 2 ** random.randrange(11)
    sent = INPUTS[protocol][name](times)
    content = bytearray(sent.data)
    for _ in range(random.choice((0, 1, 3))):
        at, count = random.randrange(len(content)), random.choice((1, 4, 64))
        content[at : at + count] = random.randbytes(random.choice((0, count)))
    piece = random.choice([each for each in _PIECES if len(content) // each <= _MOST_PIECES])
    return f"{name} x{times}", sent._replace(data=bytes(content), piece=piece, requests=sent.requests + 3)


@pytest.mark.parametrize("protocol", INPUTS)
def test_inputs_cost_no_more_than_their_bytes(protocol: str) -> None:
    assert run(faults(protocol, sized(protocol, [16])), loop_factory=SteppedLoop) == []


@pytest.mark.long_run
@pytest.mark.parametrize("protocol", INPUTS)
def test_inputs_of_any_size_cost_no_more_than_their_bytes(protocol: str) -> None:
    inputs = sized(protocol, [4**power for power in range(6)])
    assert run(faults(protocol, inputs), loop_factory=SteppedLoop) == []


@pytest.mark.long_run
@pytest.mark.parametrize("protocol", INPUTS)
def test_changed_inputs_cost_no_more_than_their_bytes(protocol: str) -> None:
    inputs = (drawn(protocol, Random(f"{protocol} {seed}")) for seed in range(_SEEDS))
    assert run(faults(protocol, inputs), loop_factory=SteppedLoop) == []
