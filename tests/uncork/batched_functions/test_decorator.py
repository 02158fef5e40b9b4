"""The dispatcher behind a decorator."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork import DefinitionError, api
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.errors import BatchTimedOut, RequestShed

pytestmark = pytest.mark.virtual_time


class Squares:
    """A function of a list that takes a virtual second, and remembers what it was given."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self.running = self.most_running = 0

    async def square(self, items: list[int]) -> list[int]:
        self.lists.append(items)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(1.0)
        self.running -= 1
        return [item * item for item in items]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_as_many_run_at_a_time_as_asked_for(concurrency: int) -> None:
    """And no batch is larger than asked for."""
    squares = Squares()
    square = batched(concurrency=concurrency, mb_max_batch_size=2, mb_max_latency=1e6)(squares.square)

    assert await asyncio.gather(*(square(i) for i in range(20))) == [i * i for i in range(20)]
    assert squares.most_running == concurrency
    assert {len(items) for items in squares.lists} == {2}


async def test_the_policy_is_that_asked_for() -> None:
    """No batching: every item alone."""
    squares = Squares()
    square = batched(policy="none", concurrency=4)(squares.square)

    await asyncio.gather(*(square(i) for i in range(4)))

    assert squares.lists == [[0], [1], [2], [3]]


GOALS = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"concurrency": 0}, "concurrency must be an integer from 1 to 10000, got 0"),
        ({"concurrency": 2.0}, "concurrency must be an integer from 1 to 10000, got 2.0"),
        ({"concurrency": 2**64}, "concurrency must be an integer from 1 to 10000, got 18446744073709551616"),
        ({"concurrency": True}, "concurrency must be an integer from 1 to 10000, got True"),
        ({"mb_max_latency": 0}, "mb_max_latency must be"),
        ({"mb_max_batch_size": 0}, "mb_max_batch_size must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"idempotent": 1}, "idempotent must be True or False, got 1"),
        ({"policy": "clever"}, "unknown policy 'clever'"),
        ({"group_by": "language"}, "group_by must be a function of an item, got 'language'"),
        ({"classes": GOALS}, "classes requires class_of"),
        ({"class_of": str}, "classes requires class_of"),
        ({"classes": GOALS, "class_of": "kind"}, "class_of, a function .* got 'kind'"),
        ({"classes": {"a": 2, "b": 1}, "class_of": str}, "the goals of classes must rise"),
        ({"classes": GOALS, "class_of": str, "mb_max_latency": 9}, "exclude each other"),
        ({"classes": GOALS, "class_of": str, "policy": "none"}, "classes require policy 'cork'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    async def square(items: list[int]) -> list[int]:
        return items

    with pytest.raises(DefinitionError, match=message):
        batched(**arguments)(square)


async def generator(items: list[int]) -> Any:
    """Async, but nothing that can be awaited."""
    yield items


def plain_generator(items: list[int]) -> Any:
    yield items


def test_what_is_no_function_of_lists_is_refused() -> None:
    for function in (generator, plain_generator):
        with pytest.raises(TypeError, match="must decorate a function that returns a list, got <function"):
            batched()(function)
    with pytest.raises(TypeError, match="must decorate a function, got 3"):
        batched()(3)  # type: ignore[call-overload]
    for wrapper in (staticmethod, property):
        with pytest.raises(TypeError, match=f"write @{wrapper.__name__} above @batched\\(\\), not below"):
            batched()(wrapper(generator))


class Counting:
    """A callable object with attributes that are named like methods of a batched function."""

    def __init__(self) -> None:
        self.stats = {"calls": 0}
        self.warm_up = False

    async def __call__(self, items: list[int]) -> list[int]:
        return items


async def test_attributes_of_a_callable_object_hide_no_method() -> None:
    echo = batched(warmup=1, mb_max_batch_size=2)(Counting())

    await echo.warm_up()

    assert await echo(3) == 3
    assert echo.stats().batches == 1


async def test_a_call_past_its_timeout_is_cancelled() -> None:
    """Its slot is free then, also if it turns its cancellation into an error."""
    cancelled = []

    @batched(timeout=5)
    async def sleep(items: list[float]) -> list[float]:
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            cancelled.append(items)
            raise OSError("the connection broke while it was closed") from None
        return items

    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    await asyncio.sleep(1.0)
    assert cancelled == [[1000.0]]
    assert await sleep(1.0) == 1.0


class Sleeper:
    """A function that sleeps; a call that is cancelled takes some more seconds to end."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.running = 0

    async def sleep(self, items: list[float]) -> list[float]:
        self.running += 1
        assert self.running == 1
        try:
            await asyncio.sleep(items[0])
        except asyncio.CancelledError:
            await asyncio.sleep(self.ends_s)
            raise
        finally:
            self.running -= 1
        return items


async def test_the_goal_is_given_in_milliseconds() -> None:
    """The only slot never ends: queued requests are shed at the goal, after 10 s."""
    sleep = batched(timeout=5, mb_max_latency=10_000)(Sleeper(100).sleep)

    callers = [asyncio.ensure_future(sleep(1000.0))]
    await asyncio.sleep(0.5)
    callers.append(asyncio.ensure_future(sleep(1.0)))
    first, second = await asyncio.gather(*callers, return_exceptions=True)

    assert isinstance(first, BatchTimedOut)
    assert isinstance(second, RequestShed)
    assert asyncio.get_running_loop().time() == pytest.approx(10, abs=1.0)


async def test_a_slot_is_not_used_before_the_cancelled_call_is_over() -> None:
    """One that cleans up for a while still runs: a caller meanwhile finds no worker.

    Once it is known how long that takes, calls wait for the slot.
    """
    sleep = batched(timeout=5, mb_max_latency=1e5)(Sleeper(3).sleep)

    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    with pytest.raises(RequestShed, match="no_worker"):
        await sleep(1.0)
    await asyncio.sleep(4.0)
    with pytest.raises(BatchTimedOut):
        await sleep(1000.0)
    began = asyncio.get_running_loop().time()
    assert await sleep(1.0) == 1.0
    assert asyncio.get_running_loop().time() - began == pytest.approx(4.0)


async def test_a_batch_past_its_timeout_before_its_first_step_leaves_its_slot() -> None:
    """Other code has blocked the loop since the batch before: its task is cancelled and runs nothing."""
    loop, gate = asyncio.get_running_loop(), asyncio.Event()
    assert isinstance(loop, VirtualLoop)
    virtual = loop._virtual
    lists: list[list[int]] = []

    def block() -> None:
        virtual.now += 10.0

    @batched(timeout=5, mb_max_latency=1e6, policy="none")
    async def echo(items: list[int]) -> list[int]:
        lists.append(items)
        await gate.wait()
        return items

    first = asyncio.ensure_future(echo(1))
    await asyncio.sleep(1.0)
    second = asyncio.ensure_future(echo(2))
    await asyncio.sleep(1.0)
    gate.set()
    loop.call_soon(block)  # after the first batch has ended, in the same turn
    assert await first == 1
    with pytest.raises(BatchTimedOut):
        await second
    assert await echo(3) == 3
    assert lists == [[1], [3]]


def test_one_event_loop_after_another() -> None:
    """Each has its own queues, and nothing is kept of the first when it is closed."""
    squares = Squares()
    square = batched()(squares.square)

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert list(await asyncio.gather(square(2), square(3))) == [4, 9]
        return weakref.ref(asyncio.get_running_loop())

    first = run(main(), loop_factory=VirtualLoop)
    run(main(), loop_factory=VirtualLoop)
    gc.collect()

    assert squares.lists == [[2, 3], [2, 3]]
    assert first() is None


def test_the_program_ends_when_the_function_ends_it() -> None:
    """No caller is left waiting."""

    @batched()
    async def leave(items: list[int]) -> list[int]:
        raise SystemExit(3)

    callers: list[asyncio.Future[int]] = []

    async def call() -> None:
        callers.append(asyncio.ensure_future(leave(1)))
        await asyncio.Event().wait()

    async def wait() -> None:
        await asyncio.wait(callers)

    with asyncio.Runner() as runner:
        with pytest.raises(SystemExit):
            runner.run(call())
        runner.run(wait())

    assert str(callers[0].exception()) == "the batch function raised SystemExit(3)"


def test_arguments_are_spelled_as_those_of_api() -> None:
    """With the same defaults."""
    of_api, ours = inspect.signature(api).parameters, dict(inspect.signature(batched).parameters)
    del ours["misplaced"], ours["class_of"]
    assert {name: one.default for name, one in ours.items()} == {name: of_api[name].default for name in ours}


def test_without_parentheses_it_says_how_to_write_it() -> None:
    async def double(items: list[int]) -> list[int]:
        return items

    with pytest.raises(
        TypeError, match=r"^write @batched\(\) with parentheses, and its arguments by keyword$"
    ):
        batched(double)


async def test_only_items_of_one_group_share_a_call() -> None:
    """Values of different types are different groups, although a dict would take them for one."""
    lists: list[list[Any]] = []

    @batched(group_by=lambda item: item)
    async def echo(items: list[Any]) -> list[Any]:
        lists.append(items)
        return items

    items = [1, "1", True, 1.0, 1, None, "1", None]
    assert await asyncio.gather(*map(echo, items)) == items
    assert sorted(map(repr, lists)) == ["['1', '1']", "[1, 1]", "[1.0]", "[None, None]", "[True]"]


async def test_a_batch_has_the_context_of_one_of_its_callers() -> None:
    """The batch before, whose end starts it, has another context."""
    tenant: ContextVar[str] = ContextVar("tenant")
    seen: list[tuple[str, list[str]]] = []

    @batched(group_by=lambda item: tenant.get(), mb_max_latency=1e6)
    async def echo(items: list[str]) -> list[str]:
        seen.append((tenant.get(), items))
        await asyncio.sleep(1)
        return items

    async def call(name: str) -> str:
        tenant.set(name)
        return await echo(name)

    await asyncio.gather(*map(call, "aabbc"))
    assert sorted(seen) == [("a", ["a", "a"]), ("b", ["b", "b"]), ("c", ["c"])]


async def test_a_group_that_cannot_be_had_is_the_callers_error() -> None:
    @batched(group_by=lambda item: item["group"])
    async def echo(items: list[Any]) -> list[Any]:
        return items

    with pytest.raises(TypeError, match=r"@batched: group_by must return a hashable value, got \[1\]"):
        await echo({"group": [1]})
    with pytest.raises(KeyError, match="group"):
        await echo({})
    assert await echo({"group": 1}) == {"group": 1}


async def test_items_of_the_first_class_go_first() -> None:
    """Bulk rides behind them, although it came before; nothing but its class says which is which."""
    lists: list[list[str]] = []

    @batched(classes={"user": 1000, "job": None}, class_of=lambda item: item.rstrip("0123456789"))
    async def echo(items: list[str]) -> list[str]:
        lists.append(items)
        await asyncio.sleep(0.1)
        return items

    items = ["job1", "job2", "user3"]
    first = asyncio.ensure_future(echo("user0"))
    await asyncio.sleep(0.05)
    assert await asyncio.gather(first, *map(echo, items)) == ["user0", *items]
    assert lists == [["user0"], ["user3", "job1", "job2"]]
    with pytest.raises(ValueError, match="@batched: class_of must return 'user' or 'job', got 'guest'"):
        await echo("guest")
