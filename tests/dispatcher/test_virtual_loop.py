"""The clock that the tests of the shell run on."""

import asyncio

import pytest

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run

pytestmark = pytest.mark.virtual_time


async def test_time_jumps_to_the_next_timer() -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, asyncio.get_running_loop().time()))

    await asyncio.gather(sleeper("c", 86_400), sleeper("a", 0.25), sleeper("b", 3600))

    assert woken == [("a", 0.25), ("b", 3600.0), ("c", 86_400.0)]


async def test_time_stands_while_there_is_work() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() == 0.0


def test_a_deadlock_fails() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run(main(), loop_factory=VirtualLoop)
