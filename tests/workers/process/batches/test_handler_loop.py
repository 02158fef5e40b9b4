"""The event loop that all async handlers of a worker share."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from contextvars import ContextVar
from typing import Any, NoReturn

import pytest

from tests.loops import HANG_S
from uncork_workers.process.batches import handler_loop
from uncork_workers.process.batches.handler_loop import HandlerLoop, HandlerLoopThread

Loop = HandlerLoop | HandlerLoopThread


@pytest.fixture(params=[HandlerLoop, HandlerLoopThread])
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    with closing(request.param()) as made:
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
def test_an_exception_names_the_line_that_raised_it(loop: Loop, error: type[BaseException]) -> None:
    async def call() -> None:
        raise error

    with pytest.raises(error) as raised:
        loop.run(call())

    assert traceback.extract_tb(raised.value.__traceback__)[-1].line == "raise error"


@FATAL
def test_a_failed_call_leaves_no_task_of_ours_behind(loop: Loop, error: type[BaseException]) -> None:
    async def call() -> None:
        raise error

    async def others() -> list[str]:
        await turns(2)
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    before = loop.run(others())
    for _ in range(3):
        with pytest.raises(error):
            loop.run(call())

    assert len(loop.run(others())) == len(before)


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_handler_that_stops_the_loop_stops_no_other(how: str) -> None:
    """A later call runs, also after one that cancels all tasks."""

    async def call() -> None:
        if how == "stop":
            asyncio.get_running_loop().stop()
        else:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        await turns()

    with closing(HandlerLoopThread()) as loop:
        with suppress(asyncio.CancelledError):
            loop.run(call())
        loop.run(turns())


@FATAL
def test_tasks_of_tasks_belong_to_the_call_too(loop: Loop, error: type[BaseException]) -> None:
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


def test_tasks_of_calls_that_work_go_on(loop: Loop) -> None:
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
    loop: Loop, error: type[BaseException]
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
def test_a_handler_may_deal_with_what_its_task_raises(loop: Loop, error: type[BaseException]) -> None:
    async def exits() -> NoReturn:
        raise error

    async def call() -> type[BaseException]:
        [end] = await asyncio.gather(exits(), return_exceptions=True)
        return type(end)

    assert loop.run(call()) is error


def test_tasks_that_ignore_their_cancellation_do_not_hold_the_worker_up(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def test_calls_of_several_threads_run_at_once_in_one_loop_and_their_own_contexts() -> None:
    met = threading.Barrier(3, timeout=HANG_S)
    name: ContextVar[str] = ContextVar("name")

    async def call() -> tuple[str, asyncio.AbstractEventLoop]:
        await asyncio.to_thread(met.wait)
        return name.get(), asyncio.get_running_loop()

    def run(own: str) -> tuple[str, asyncio.AbstractEventLoop]:
        name.set(own)
        return shared.run(call())

    with closing(HandlerLoopThread()) as shared, ThreadPoolExecutor(3) as pool:
        results = list(pool.map(run, "abc"))

    assert [own for own, _ in results] == ["a", "b", "c"]
    assert len({one for _, one in results}) == 1


def test_a_thread_that_is_interrupted_leaves_no_call_behind() -> None:
    """As by a signal handler that raises."""
    tasks, began = Tasks(), threading.Event()

    async def call() -> None:
        began.set()
        await tasks.lasting()

    class Interrupted:
        def result(self) -> None:
            assert began.wait(HANG_S)
            raise KeyboardInterrupt

    def schedule(made: Any, loop: asyncio.AbstractEventLoop) -> Any:
        future = run_coroutine_threadsafe(made, loop)
        interrupted = Interrupted()
        interrupted.cancel = future.cancel  # type: ignore[attr-defined]
        return interrupted

    run_coroutine_threadsafe = asyncio.run_coroutine_threadsafe
    with closing(HandlerLoopThread()) as loop:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "run_coroutine_threadsafe", schedule)
            with pytest.raises(KeyboardInterrupt):
                loop.run(call())
        loop.run(turns())

    assert tasks.ends == ["lasting"]
