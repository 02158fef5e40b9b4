"""The clock that the tests of the shell run on."""

import asyncio

import pytest

from tests.dispatcher.virtual_loop import run


def test_time_jumps_to_the_next_timer() -> None:
    """Three sleepers wake in the order of their alarms, a day later."""
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(sleeper("c", 86_400), sleeper("a", 0.25), sleeper("b", 3600))

    run(main())

    assert woken == [("a", 0.25), ("b", 3600.0), ("c", 86_400.0)]


def test_time_stands_while_there_is_work() -> None:
    """A thousand turns of the loop take no time."""

    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(main()) == 0.0


def test_a_deadlock_is_told() -> None:
    """Rather than waited for."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run(main())


def test_what_the_loop_would_only_log_fails_the_test() -> None:
    """An exception in a callback, and in a task that nobody waits for."""

    async def callback() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    async def task() -> None:
        asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(1)

    async def fails() -> None:
        raise KeyError

    for main in (callback, task):
        with pytest.raises(AssertionError, match="logged by the loop"):
            run(main())
