"""The event loop of asynchronous tests."""

import asyncio
import gc
import io
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class CheckedLoop(asyncio.SelectorEventLoop):
    """A loop that fails on closing with everything that a plain loop would only log."""

    def __init__(self, *arguments: Any) -> None:
        self._problems: list[str] = []
        super().__init__(*arguments)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._problems.append(repr(context))

    def close(self) -> None:
        if self.is_closed():
            return
        super().close()
        gc.collect(1)  # a task reports an exception that nobody retrieved when it is collected
        if self._problems:
            raise AssertionError(f"logged by the loop: {'; '.join(self._problems)}")


class RealLoop(CheckedLoop):
    """A checked loop on real time that stops when a test hangs."""

    hang_s = 10.0

    def run_until_complete(self, future: Awaitable[T] | Generator[Any, None, T]) -> T:
        timer = self.call_later(self.hang_s, self._give_up)
        try:
            return super().run_until_complete(future)
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        stacks = io.StringIO()
        for task in asyncio.all_tasks(self):
            task.print_stack(file=stacks)
        self._problems.append(f"the test hung\n{stacks.getvalue()}")
        self.stop()


def other_tasks() -> list[asyncio.Task[Any]]:
    """Return the tasks of the running loop besides those of the test and its runner."""
    return [
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and "TestRunner._call_in_runner_task" not in repr(task)
    ]


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], CheckedLoop] = RealLoop) -> T:
    """Run a coroutine on a checked loop of its own."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
