"""Methods: each instance has queues of its own, which do not keep it alive."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork.batched_functions import queues
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.errors import DispatchError

pytestmark = pytest.mark.virtual_time


class Model:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lists: list[list[str]] = []

    @batched()
    async def embed(self, texts: list[str]) -> list[str]:
        """Embed texts."""
        self.lists.append(texts)
        await asyncio.sleep(0.1)
        return [f"{self.name}:{text}" for text in texts]

    @batched()
    async def rank(self, queries: list[str], texts: list[str], *, top: Any = 3) -> list[Any]:
        return [(self.name, *row) for row in zip(queries, texts, top, strict=True)]


async def test_each_instance_has_its_own_batches() -> None:
    one, two = Model("one"), Model("two")

    ends = await asyncio.gather(one.embed("a"), two.embed("b"), one.embed("c"), two.embed("d"))

    assert list(ends) == ["one:a", "two:b", "one:c", "two:d"]
    assert (one.lists, two.lists) == ([["a", "c"]], [["b", "d"]])
    assert await one.rank("q", "t", top=1) == ("one", "q", "t", 1)


async def test_the_class_has_the_method_like_any_function() -> None:
    model = Model("m")

    assert await Model.embed(model, "a") == "m:a"  # type: ignore[arg-type, call-arg]
    assert Model.embed.__doc__ == model.embed.__doc__ == "Embed texts."
    assert (model.embed.__name__, inspect.signature(Model.embed)) == (  # type: ignore[attr-defined]
        "embed",
        inspect.signature(Model.embed.__wrapped__),  # type: ignore[attr-defined]
    )
    for args in [(), (None, "a")]:
        with pytest.raises(
            TypeError, match=r"Model.embed\(\) is a method and was called without its instance"
        ):
            await Model.embed(*args)  # type: ignore[arg-type]


class Kinds:
    @staticmethod
    @batched()
    async def static(items: list[int]) -> list[int]:
        return [item + 1 for item in items]

    @classmethod
    @batched()
    async def of_class(cls, items: list[int]) -> list[str]:
        return [f"{cls.__name__}{item}" for item in items]

    @batched(warmup=1)
    @classmethod
    async def below(cls, items: list[int]) -> list[str]:
        return [f"{cls.__name__}{item}" for item in items]


class SubKinds(Kinds):
    pass


async def test_static_and_class_methods() -> None:
    assert await Kinds.static(1) == await Kinds().static(1) == 2
    assert await Kinds.of_class(1) == await Kinds().of_class(1) == "Kinds1"
    assert await Kinds.below(1) == await Kinds().below(1) == "Kinds1"
    assert await SubKinds.below(1) == "SubKinds1"
    assert pickle.loads(pickle.dumps(Kinds.below)).stats().batches == 2
    await SubKinds.below.warm_up()
    assert (Kinds.below.stats().batches, SubKinds.below.stats().batches) == (2, 1)


async def test_each_instance_has_its_own_statistics() -> None:
    for method in (Model.embed, Kinds.__dict__["of_class"].__func__):
        with pytest.raises(TypeError, match=r"write INSTANCE.METHOD; for a class method, write @batched"):
            method.stats()
        with pytest.raises(TypeError, match="is a method, and this is about one instance"):
            await method.warm_up()


@dataclass
class Equal:
    """Compares by value, so it cannot be hashed."""

    name: str

    @batched()
    async def tag(self, items: list[int]) -> list[str]:
        return [f"{self.name}{id(self)}{item}" for item in items]


class Slots:
    __slots__ = ()

    @batched()
    async def same(self, items: list[int]) -> list[int]:
        return items


class WeakSlots(Slots):
    __slots__ = ("__weakref__",)


async def test_instances_that_are_equal_or_have_slots() -> None:
    one, two = Equal("x"), Equal("x")
    ends = await asyncio.gather(one.tag(1), two.tag(1))
    assert list(ends) == [f"x{id(one)}1", f"x{id(two)}1"]

    assert await WeakSlots().same(1) == 1
    with pytest.raises(TypeError, match=r"Slots has no weak references.* add '__weakref__' to its __slots__"):
        await Slots().same(1)


async def test_a_method_of_many_positional_parameters_must_have_one_besides_self() -> None:
    with pytest.raises(TypeError, match="must have a parameter for the list of items"):

        class Wrong:
            @batched()
            async def nothing(self) -> list[int]:
                return []


async def test_queues_end_with_their_instance() -> None:
    """And with them the timer that the loop keeps."""
    model = Model()
    await model.embed("a")
    ended = weakref.ref(model)
    queue = weakref.ref(model.embed._queues.here())
    number = len(queues.live())
    del model
    gc.collect()
    assert ended() is None
    assert len(queues.live()) == number - 1

    await asyncio.sleep(0.1)
    gc.collect()
    assert queue() is None


async def test_an_instance_lives_until_its_calls_have_ended() -> None:
    """Whether they are queued or run, although nothing else refers to it."""
    model = Model("m")
    ended = weakref.ref(model)
    calls = [asyncio.ensure_future(model.embed("a"))]
    await asyncio.sleep(0.05)
    calls.append(asyncio.ensure_future(model.embed("b")))
    await asyncio.sleep(0)
    del model
    gc.collect()
    assert ended() is not None

    assert await asyncio.gather(*calls) == ["m:a", "m:b"]
    calls.clear()
    await asyncio.sleep(0.1)
    gc.collect()
    assert ended() is None


async def test_the_garbage_collector_may_run_in_another_thread() -> None:
    """The loop closes the queues; nothing of it is touched from there."""
    model = Model()
    await model.embed("a")
    queue = weakref.ref(model.embed._queues.here())
    models = [model]
    del model
    ending = threading.Thread(target=models.clear)
    ending.start()
    ending.join()
    await asyncio.sleep(0.1)
    gc.collect()
    assert queue() is None


def test_an_instance_may_outlive_its_loops() -> None:
    models = [Model("m")]

    async def main() -> None:
        assert await models[0].embed("a") == "m:a"

    run(main(), loop_factory=VirtualLoop)
    run(main(), loop_factory=VirtualLoop)
    number = len(queues.live())
    models.clear()
    gc.collect()
    assert len(queues.live()) == number - 1


@batched()
async def module_level(items: list[int]) -> list[int]:
    return items


async def test_it_is_copied_and_pickled_like_a_function() -> None:
    """And frameworks can see that it is async, from Python 3.12 on."""
    assert inspect.iscoroutinefunction(module_level) == (sys.version_info >= (3, 12))
    assert copy.deepcopy(module_level) is module_level
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert await copy.copy(Model("m")).embed("a") == "m:a"
    again = pickle.loads(pickle.dumps(Model("m").embed))
    assert await again("a") == "m:a"


async def test_a_function_that_calls_itself_does_not_wait_for_its_own_end() -> None:
    class Tree:
        @batched()
        async def depth(self, trees: list[Any]) -> list[int]:
            return [1 + max(await asyncio.gather(*map(self.depth, tree)), default=0) for tree in trees]

    with pytest.raises(RuntimeError, match=r"Tree.depth calls itself and would wait for its own end"):
        await Tree().depth([[], []])
    assert await Tree().depth([]) == 1


async def test_tasks_that_a_call_has_started_may_call_after_its_end() -> None:
    ends: list[Any] = []

    @batched()
    async def echo(items: list[int]) -> list[int]:
        async def later() -> None:
            await asyncio.sleep(1)
            ends.append(await echo(7))

        if items != [7]:
            ends.append(asyncio.create_task(later()))
        return items

    assert await echo(1) == 1
    await asyncio.sleep(2)
    assert ends[1:] == [7]


async def test_methods_of_different_instances_may_call_each_other() -> None:
    class Node:
        def __init__(self, below: Node | None) -> None:
            self.below = below

        @batched()
        async def depth(self, items: list[int]) -> list[int]:
            return [item if self.below is None else 1 + await self.below.depth(item) for item in items]

    assert await Node(Node(Node(None))).depth(1) == 3


@pytest.mark.parametrize("at", range(12))
async def test_callers_may_leave_at_any_moment(at: int) -> None:
    """Some leave at each moment of a failing batch; the others get their own results."""

    class Picky:
        @batched()
        async def pick(self, items: list[int], other: list[int]) -> list[int]:
            await asyncio.sleep(0.1)
            if 3 in items:
                raise ValueError("three")
            return items

    picky = Picky()
    callers = [asyncio.ensure_future(picky.pick(item, 0)) for item in range(8)]
    await asyncio.sleep(at * 0.05)
    left = [callers[0], callers[5]]
    for caller in left:
        caller.cancel()
    ends = await asyncio.gather(*callers, return_exceptions=True)

    for item, end in enumerate(ends):
        if item in (0, 5):
            assert end == item or isinstance(end, asyncio.CancelledError)
        else:
            assert isinstance(end, ValueError) if item == 3 else end == item
    assert await picky.pick(9, 0) == 9
    assert not isinstance(ends[3], DispatchError)


async def test_a_bound_method_stays_bound_in_another_class() -> None:
    class Front:
        embed = Model("m").embed

    assert await Front().embed("a") == "m:a"
