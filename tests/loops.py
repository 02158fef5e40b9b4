"""The event loop of asynchronous tests."""

import asyncio
import gc
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
HANG_S = 300.0
"""Ends a test that hangs: far above any duration, also of processes that start on a busy machine."""


class CheckedLoop(asyncio.SelectorEventLoop):
    """A loop that keeps what a plain loop would only log, for :func:`raise_problems`."""

    problems: ClassVar[list[str]] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # What the task of anyio's runner raises, the test has raised already: Hypothesis's end of an example.
        is_anyio = "TestRunner._run_tests_and_fixtures" in repr(context.get("future"))
        # grpc.aio has one poller for all loops of a process: it may hear late what a closed loop asked for.
        is_poller = "PollerCompletionQueue" in repr(context.get("handle"))
        is_late = is_poller and str(context.get("exception")) == "Event loop is closed"
        if not (is_anyio or is_late):
            self.problems.append(repr(context))


class RealLoop(CheckedLoop):
    """A checked loop on real time that stops when a test hangs."""

    hang_s = HANG_S

    def run_until_complete(self, future: Awaitable[T] | Generator[Any, None, T]) -> T:
        timer = self.call_later(self.hang_s, self._give_up)
        try:
            return super().run_until_complete(future)
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        stacks = "\n".join(map(_stack, asyncio.all_tasks(self)))
        self.problems.append(f"the test hung\n{stacks}")
        self.stop()


class SteppedLoop(CheckedLoop):
    """A loop with sockets whose clock stands still until a test advances it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


def _stack(task: asyncio.Task[Any]) -> str:
    """Describe where a task waits; its own print_stack shows the outermost frame only."""
    lines = [repr(task.get_coro())]
    waits_for: Any = task.get_coro()
    while (frame := getattr(waits_for, "cr_frame", None)) is not None:
        lines += traceback.format_stack(frame, limit=1)
        waits_for = waits_for.cr_await
    return "".join(lines)


def raise_problems() -> None:
    """Raise what loops have kept since the last call.

    Not when a loop closes: anyio's plugin would go on with the closed loop in the next test.
    """
    gc.collect(1)  # a task reports an exception that nobody retrieved when it is collected
    problems = "; ".join(CheckedLoop.problems)
    CheckedLoop.problems.clear()
    assert not problems, f"logged by the loop: {problems}"


async def until(condition: Callable[[], object]) -> None:
    """Wait until sockets, threads or processes make a condition true; the loop ends a test that hangs."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def other_tasks() -> list[asyncio.Task[Any]]:
    """Return the tasks of the running loop besides those of the test and its runner."""
    return [
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and "TestRunner._call_in_runner_task" not in repr(task)
    ]


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], CheckedLoop] = RealLoop) -> T:
    """Run a coroutine on a checked loop of its own."""
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main)
    finally:
        raise_problems()
