"""The event loop that asynchronous tests run on."""

import asyncio

import pytest

from tests.loops import RealLoop, run


class ImpatientLoop(RealLoop):
    hang_s = 0.01


def test_a_hang_ends_and_shows_where() -> None:
    async def main() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

    with pytest.raises(
        AssertionError, match=r"(?s)the test hung\n.*await asyncio.Event\(\).wait\(\)"
    ) as caught:
        run(main(), loop_factory=ImpatientLoop)
    assert "stopped before" in repr(caught.value.__context__)


def test_problems_of_callbacks_and_of_forgotten_tasks_fail_the_test() -> None:
    async def callback() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    async def task() -> None:
        forgotten = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(0)
        del forgotten

    async def fails() -> None:
        raise KeyError

    for main in (callback, task):
        with pytest.raises(AssertionError, match="logged by the loop"):
            run(main())


async def test_async_tests_run_on_it() -> None:
    assert isinstance(asyncio.get_running_loop(), RealLoop)
