"""Plain functions run in threads of their own, one call at a time, and cannot be stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from tests.loops import HANG_S, run, until
from tests.uncork.batched_functions.failing import Item, kept_of_failed, without_collector
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.errors import BatchTimedOut, DispatchError, RequestShed


class Gate:
    """A plain function whose calls wait until the test lets one end."""

    def __init__(self) -> None:
        self.lists: list[list[Any]] = []
        self.threads: set[str] = set()
        self.running = self.most_running = 0
        self._ends = threading.Semaphore(0)

    def call(self, items: list[Any]) -> list[Any]:
        self.lists.append(items)
        self.threads.add(threading.current_thread().name)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        assert self._ends.acquire(timeout=HANG_S)
        self.running -= 1
        return items

    def open(self, calls: int = 1) -> None:
        self._ends.release(calls)


async def test_a_plain_function_leaves_the_loop_free() -> None:
    gate = Gate()
    call = batched(mb_max_latency=1e6)(gate.call)

    first = asyncio.ensure_future(call(1))
    await until(lambda: gate.running)
    others = [asyncio.ensure_future(call(item)) for item in (2, 3)]
    await asyncio.sleep(0.01)
    gate.open(2)

    assert await asyncio.gather(first, *others) == [1, 2, 3]
    assert gate.lists == [[1], [2, 3]]
    assert gate.most_running == 1
    [name] = gate.threads
    assert name.startswith("Gate.call")


async def test_as_many_threads_as_asked_for() -> None:
    gate = Gate()
    call = batched(mb_max_latency=1e6, concurrency=2, mb_max_batch_size=1)(gate.call)

    callers = [asyncio.ensure_future(call(item)) for item in range(3)]
    await until(lambda: gate.running == 2)
    await asyncio.sleep(0.01)
    gate.open(3)

    assert await asyncio.gather(*callers) == [0, 1, 2]
    assert gate.most_running == 2


async def test_a_call_past_its_timeout_keeps_the_thread() -> None:
    """Its callers get an error; the next batch starts when it has ended."""
    gate = Gate()
    call = batched(timeout=0.05, mb_max_latency=1e6)(gate.call)

    with pytest.raises(BatchTimedOut):
        await call(1)
    with pytest.raises(RequestShed, match="no_worker"):
        await call(2)
    assert gate.lists == [[1]]
    gate.open()
    await until(lambda: not gate.running)
    await until(lambda: call._queues.here()._dispatcher.work().idle)
    gate.open()
    assert await call(3) == 3
    assert gate.most_running == 1


class Private(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("kind", [ValueError, StopIteration, asyncio.CancelledError, GeneratorExit, Private])
@pytest.mark.parametrize("raises", [True, False])
async def test_every_exception_reaches_its_caller(kind: type[BaseException], raises: bool) -> None:
    """Also those that a future of a thread cannot carry."""

    @batched()
    def pick(items: list[int]) -> list[Any]:
        if raises and 2 in items:
            raise kind("two")
        return [kind("two") if item == 2 else item for item in items]

    ends = await asyncio.gather(*map(pick, range(5)), return_exceptions=True)

    assert [*ends[:2], *ends[3:]] == [0, 1, 3, 4]
    expected = kind if issubclass(kind, Exception) else DispatchError
    # No coroutine can raise StopIteration.
    assert isinstance(ends[2], RuntimeError if kind is StopIteration else expected)


async def test_a_coroutine_of_a_plain_function_is_an_error() -> None:
    """A decorator below @batched may hide that a function is async."""

    async def echo(items: list[int]) -> list[int]:
        return items

    @batched()
    def wrapped(items: list[int]) -> Any:
        return echo(items)

    with pytest.raises(TypeError, match="wrapped returned a coroutine; decorate an async function"):
        await wrapped(1)


def test_a_call_that_ends_the_program_ends_it() -> None:
    @batched()
    def leave(items: list[int]) -> list[int]:
        raise SystemExit(3)

    with pytest.raises(SystemExit), asyncio.Runner() as runner:
        runner.run(leave(1))


def test_a_loop_that_ends_waits_for_its_thread() -> None:
    """asyncio.run cancels what still runs, and the function has ended when it returns."""
    gate = Gate()
    call = batched(mb_max_latency=1e6)(gate.call)
    callers: list[asyncio.Future[int]] = []

    async def main() -> None:
        callers.append(asyncio.ensure_future(call(1)))
        await until(lambda: gate.running)
        asyncio.get_running_loop().call_later(0.05, gate.open)

    run(main())
    assert (gate.lists, gate.running) == ([[1]], 0)

    async def again() -> None:
        gate.open()
        assert await call(2) == 2

    run(again())
    assert len(gate.threads) == 1


def test_several_loops_share_the_thread() -> None:
    """One call at a time, whichever loop has asked for it."""
    gate = Gate()
    call = batched(mb_max_latency=1e6)(gate.call)
    ends: list[int] = []

    def in_a_loop(item: int) -> None:
        async def main() -> None:
            ends.append(await call(item))

        asyncio.run(main())

    loops = [threading.Thread(target=in_a_loop, args=(item,)) for item in range(3)]
    for loop in loops:
        loop.start()
    gate.open(3)
    for loop in loops:
        loop.join(HANG_S)

    assert sorted(ends) == [0, 1, 2]
    assert gate.most_running == 1
    assert len(gate.threads) == 1


def test_the_first_calls_of_two_threads_share_the_queue() -> None:
    """Else the function would run twice at once. The threads take turns as often as they can."""
    calls = [batched()(Gate().call) for _ in range(300)]
    barrier = threading.Barrier(2)
    found: list[list[Any]] = []

    def begin() -> None:
        queues = []
        for call in calls:
            barrier.wait(HANG_S)
            queues.append(call._queues)
        found.append(queues)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=begin) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
    finally:
        sys.setswitchinterval(interval_s)

    one, other = found
    assert one == other


async def test_what_has_not_begun_in_the_thread_can_be_cancelled() -> None:
    """A loop whose caller leaves does not wait for the call of another loop."""
    gate = Gate()
    call = batched(mb_max_latency=1e6)(gate.call)
    first = asyncio.ensure_future(call(1))
    await until(lambda: gate.running)

    def elsewhere() -> None:
        async def main() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call(2), 0.05)

        asyncio.run(main())

    await asyncio.to_thread(elsewhere)
    assert gate.lists == [[1]]
    gate.open(2)
    assert await first == 1
    assert await call(3) == 3
    assert gate.lists == [[1], [3]]


async def test_a_plain_function_that_calls_itself_does_not_wait_for_its_own_end() -> None:
    """Neither on its loop nor on another."""
    loop = asyncio.get_running_loop()

    @batched()
    def on_another_loop(items: list[int]) -> list[int]:
        return [asyncio.run(on_another_loop(item - 1)) for item in items]

    @batched()
    def on_its_loop(items: list[int]) -> list[int]:
        return [asyncio.run_coroutine_threadsafe(on_its_loop(1), loop).result(HANG_S) for _ in items]

    for call in (on_another_loop, on_its_loop):
        with pytest.raises(RuntimeError, match="calls itself and would wait for its own end"):
            await call(3)


def _fails(items: list[Item]) -> list[Item]:
    raise ValueError("bad")


def _returns_an_error(items: list[Item]) -> list[Any]:
    return [ValueError("bad") for _ in items]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("function", [_fails, _returns_an_error])
async def test_a_failed_batch_leaves_nothing_to_the_garbage_collector(
    function: Callable[[list[Item]], Any], count: int, idempotent: bool
) -> None:
    call = batched(idempotent=idempotent)(function)
    with without_collector():
        kept = await kept_of_failed(call, count)
        await until(lambda: [one() for one in kept] == [None] * count)


async def test_methods_have_a_thread_for_each_instance() -> None:
    class Model:
        def __init__(self) -> None:
            self.gate = Gate()

        @batched(mb_max_latency=1e6)
        def embed(self, items: list[int], factor: list[int]) -> list[int]:
            self.gate.call(items)
            return [item * by for item, by in zip(items, factor, strict=True)]

    models = [Model(), Model()]
    gates = [model.gate for model in models]
    callers = [asyncio.ensure_future(model.embed(3, factor=2)) for model in models]  # type: ignore[call-arg]
    await until(lambda: all(gate.running for gate in gates))
    for gate in gates:
        gate.open()
    assert await asyncio.gather(*callers) == [6, 6]

    [name] = gates[0].threads
    models.clear()
    callers.clear()
    await until(lambda: gc.collect() is not None and name not in _threads())


async def test_a_queue_keeps_no_variables_of_its_first_caller() -> None:
    """Nor the instance, if one of them is the instance."""
    current: ContextVar[Any] = ContextVar("current")

    class Model:
        @batched()
        def embed(self, items: list[int]) -> list[int]:
            return items

    async def first() -> weakref.ref[Model]:
        model = Model()
        current.set(model)
        assert await model.embed(1) == 1
        return weakref.ref(model)

    ended = await asyncio.create_task(first())
    await until(lambda: gc.collect() is not None and ended() is None)


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def test_no_part_runs_for_callers_who_have_left() -> None:
    gate = Gate()

    @batched(mb_max_latency=1e6)
    def fail(items: list[int]) -> list[int]:
        gate.call(items)
        raise ValueError("bad")

    callers = [asyncio.ensure_future(fail(item)) for item in range(4)]
    await until(lambda: gate.running)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    gate.open(9)
    await until(lambda: fail.stats().batches)
    assert gate.lists == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="bad"):
        await fail(5)


def test_a_forked_process_has_threads_of_its_own() -> None:
    @batched()
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    assert asyncio.run(double(1)) == 2
    child = os.fork()
    if not child:  # pragma: no cover  # the child has no coverage
        try:
            os._exit(asyncio.run(double(2)))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 4
