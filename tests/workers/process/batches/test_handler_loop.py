"""The event loop that all async handlers of a worker share."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NoReturn

import pytest

from uncork_workers.process.batches import handler_loop
from uncork_workers.process.batches.handler_loop import HandlerLoop


@pytest.fixture
def loop() -> Iterator[HandlerLoop]:
    with closing(HandlerLoop()) as made:
        yield made


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Tasks:
    def __init__(self) -> None:
        self.ends: list[str] = []
        self.kept: set[asyncio.Task[Any]] = set()

    async def lasting(self, name: str = "lasting") -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ends.append(name)
            raise

    def start(self, name: str = "lasting") -> None:
        self.kept.add(asyncio.create_task(self.lasting(name)))


FATAL = pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError, asyncio.CancelledError])
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@FATAL
def test_a_failed_call_leaves_no_task_behind(loop: HandlerLoop, error: type[BaseException]) -> None:
    tasks = Tasks()

    async def fail() -> NoReturn:
        await turns(3)
        raise error

    async def call() -> None:
        await asyncio.gather(tasks.lasting("a"), fail(), tasks.lasting("b"))

    with pytest.raises(error):
        loop.run(call())

    assert sorted(tasks.ends) == ["a", "b"]


@FATAL
def test_tasks_of_tasks_belong_to_the_call_too(loop: HandlerLoop, error: type[BaseException]) -> None:
    tasks = Tasks()

    async def middle() -> None:
        tasks.start()
        await turns(50)

    async def call() -> None:
        tasks.kept.add(asyncio.create_task(middle()))
        await turns(3)
        raise error

    with pytest.raises(error):
        loop.run(call())

    assert tasks.ends == ["lasting"]


def test_tasks_of_calls_that_work_go_on(loop: HandlerLoop) -> None:
    """Also if a later call fails, and what they start meanwhile."""
    tasks = Tasks()

    async def refresh() -> None:
        await turns(5)
        tasks.start("child")
        await turns(5)
        tasks.ends.append("refreshed")

    async def start() -> None:
        tasks.kept.add(asyncio.create_task(refresh()))
        tasks.start()

    async def fail() -> None:
        await turns(8)
        raise ValueError

    loop.run(start())
    with pytest.raises(ValueError, match=r"^$"):
        loop.run(fail())
    loop.run(turns())

    assert tasks.ends == ["refreshed"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_a_task_of_an_earlier_call_raises_is_not_raised_in_a_later_one(
    loop: HandlerLoop, error: type[BaseException]
) -> None:
    kept = []

    async def exits() -> NoReturn:
        await turns(5)
        raise error

    async def start() -> None:
        kept.append(asyncio.create_task(exits()))

    async def later() -> str:
        await turns()
        return "a result"

    loop.run(start())

    assert loop.run(later()) == "a result"
    assert kept[0].done()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_handler_may_deal_with_what_its_task_raises(loop: HandlerLoop, error: type[BaseException]) -> None:
    async def exits() -> NoReturn:
        raise error

    async def call() -> type[BaseException]:
        [end] = await asyncio.gather(exits(), return_exceptions=True)
        return type(end)

    assert loop.run(call()) is error


def test_tasks_that_ignore_their_cancellation_do_not_hold_the_worker_up(
    loop: HandlerLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handler_loop, "_MOST_SECONDS", 0.01)
    kept = []

    async def stubborn() -> None:
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def call() -> None:
        kept.append(asyncio.create_task(stubborn()))
        await turns(3)
        raise ValueError

    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match=r"^$"):
        loop.run(call())

    assert "1 task of a failed handler call still run 0.01 s after they were cancelled" in caplog.text
    loop.run(turns())
    for _ in range(2):
        kept[0].cancel()
        loop.run(turns())
    assert kept[0].done()
