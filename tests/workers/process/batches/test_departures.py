"""Clients that leave while their batch runs."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import HANG_S, run
from tests.workers.run_batch import Outlet, batch_of, run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches import handler_loop
from uncork_workers.process.batches.departures import Departures
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.batches.handler_loop import Watch
from uncork_workers.process.context import context
from uncork_workers.wire.messages import Reply

Items = list[Any]


class Watching(Service):
    """Calls ``meanwhile`` with the rows, and then returns what that does; records all calls."""

    def __init__(self, meanwhile: Callable[[Items], Any] = lambda items: items) -> None:
        self.meanwhile = meanwhile
        self.calls: list[Items] = []
        self.ended: list[str] = []

    @api(input=Json())
    def plain(self, items: Items) -> Any:
        self.calls.append(items)
        return self.meanwhile(items)

    @api(input=Json())
    async def slow(self, items: Items) -> Any:
        """Wait until the call is cancelled."""
        self.calls.append(items)
        self.meanwhile(items)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), HANG_S)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return items

    @api(input=Json())
    async def stubborn(self, items: Items) -> Any:
        """Go on after it was cancelled."""
        self.calls.append(items)
        self.meanwhile(items)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), HANG_S)
        except asyncio.CancelledError:
            self.ended.append("suppressed")
        return items

    @api(input=Json(), policy="none")
    async def tell(self, items: Items) -> Any:
        yield "a"
        self.meanwhile(items)
        await asyncio.wait_for(asyncio.Event().wait(), HANG_S)
        yield "b"


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


def ask(
    outlet: Outlet, meanwhile: Callable[[Items], Any], to: str = "plain", count: int = 2, **fields: Any
) -> tuple[Watching, Reply]:
    """Run a batch of the rows 0, 1, ..., one in each request."""
    service = Watching(meanwhile)
    reply, _ = run_batch(service, to, *[b"%d" % row for row in range(count)], outlet=outlet, **fields)
    return service, reply


def all_leave(outlet: Outlet) -> Callable[[Items], Items]:
    """Return a handler during which both clients leave, and which does not ask."""

    def call(items: Items) -> Items:
        outlet.leave(0, 1)
        return items

    return call


def learned(reply: Reply) -> bool:
    return reply.worked and not reply.cancelled


def test_a_handler_that_asks_knows_whose_clients_wait(outlet: Outlet) -> None:
    seen: list[tuple[list[bool], bool]] = []

    def look(items: Items) -> Items:
        for leaving in ((), (1,), (0,)):
            outlet.leave(*leaving)
            seen.append((context().live, context().cancelled))
        return []

    _, reply = ask(outlet, look)

    assert seen == [([True, True], False), ([True, False], False), ([False, False], True)]
    assert (reply.statuses, reply.cancelled, learned(reply), reply.exceptions) == ([499] * 2, True, False, [])


def test_results_for_some_are_results(outlet: Outlet) -> None:
    def skip(items: Items) -> Items:
        outlet.leave(1)
        return [item if lives else None for item, lives in zip(items, context().live, strict=True)]

    _, reply = ask(outlet, skip)
    assert (reply.statuses, reply.cancelled, learned(reply)) == ([200, 200], True, False)


def test_a_handler_that_does_not_ask_is_learned_from(outlet: Outlet) -> None:
    """A whole batch took this time, although both clients had left."""
    _, reply = ask(outlet, all_leave(outlet))
    assert (reply.statuses, learned(reply), len(reply.chunks)) == ([200, 200], True, 1)


def test_each_row_is_that_of_its_request(outlet: Outlet) -> None:
    """In several calls, of which the last is padded."""
    seen: list[list[bool]] = []

    def look(items: Items) -> Items:
        seen.append(context().live)
        return items

    outlet.leave(1)
    service = Watching(look)
    run_batch(service, "plain", b"1,2", b"3,4", b"5", rows=[2, 2, 1], allowed_batch_sizes=(3,), outlet=outlet)
    assert service.calls == [[1, 2, 3], [4, 5, 5]]
    assert seen == [[True, True, False], [False, True, True]]


def test_nothing_runs_for_a_batch_that_was_cancelled_before(outlet: Outlet) -> None:
    outlet.leave(0, 1)
    service, reply = ask(outlet, lambda items: items)
    assert (service.calls, reply.statuses, learned(reply)) == ([], [499, 499], False)


def test_the_rest_of_a_batch_is_not_begun(outlet: Outlet) -> None:
    """Also if the handler does not ask."""
    service, reply = ask(outlet, all_leave(outlet), limit_rows=1)
    assert (service.calls, reply.statuses, learned(reply)) == ([[0]], [499, 499], False)


def test_an_async_handler_is_cancelled(outlet: Outlet, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        service, reply = ask(outlet, lambda items: outlet.leave(0, 1), "slow")
    assert (service.ended, reply.statuses, learned(reply)) == (["cancelled"], [499, 499], False)
    assert (reply.exceptions, caplog.records) == ([], [])


def test_an_async_handler_may_go_on(outlet: Outlet) -> None:
    service, reply = ask(outlet, lambda items: outlet.leave(0, 1), "stubborn")
    assert (service.ended, reply.statuses, learned(reply)) == (["suppressed"], [499, 499], False)


def test_a_stream_that_waits_is_cancelled(outlet: Outlet) -> None:
    _, reply = ask(outlet, lambda items: outlet.leave(0), "tell", count=1)
    assert (len(outlet.pieces), reply.statuses, reply.exceptions) == (1, [499], [])


def test_an_error_after_all_have_left_is_reported_once(
    outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing runs again to find the request at fault."""

    def fail(items: Items) -> Items:
        outlet.leave(0, 1)
        raise ValueError("a bug")

    service, reply = ask(outlet, fail)
    assert (service.calls, reply.statuses) == ([[0, 1]], [500, 500])
    assert [(one.error, one.requests) for one in reply.exceptions] == [("ValueError", 2)]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_cancellation_that_nobody_asked_for_is_an_error(outlet: Outlet) -> None:
    def fail(items: Items) -> Items:
        raise asyncio.CancelledError

    _, reply = ask(outlet, fail)
    assert (reply.statuses, reply.cancelled) == ([500, 500], False)


class Picky(Service):
    """Fails on some rows; before its second call, clients leave."""

    def __init__(self, outlet: Outlet, bad: Sequence[int], leaving: Sequence[int]) -> None:
        self.outlet, self.bad, self.leaving = outlet, bad, leaving
        self.calls: list[Items] = []

    @api(input=Json())
    def plain(self, items: Items) -> Items:
        self.calls.append(items)
        try:
            if any(item in self.bad for item in items):
                raise ValueError("bad")
            return items
        finally:
            self.outlet.leave(*self.leaving)


@given(
    count=st.integers(2, 12),
    bad=st.sets(st.integers(0, 11), min_size=1, max_size=3),
    leaving=st.sets(st.integers(0, 11)),
)
def test_the_search_for_bad_requests_passes_over_those_whose_clients_have_left(
    count: int, bad: set[int], leaving: set[int]
) -> None:
    service = Picky(outlet := Outlet(), sorted(bad), [at for at in sorted(leaving) if at < count])
    reply, _ = run_batch(service, "plain", *[b"%d" % row for row in range(count)], outlet=outlet)

    first, *others = service.calls
    assert first == [*range(count)]
    assert not leaving & {item for call in others for item in call}
    for at in set(range(count)) - leaving:
        assert reply.statuses[at] == (500 if at in bad else 200)
    if not bad & set(range(count)):
        assert (others, set(reply.statuses)) == ([], {200})


def test_the_next_batch_runs_on_the_same_loop(outlet: Outlet) -> None:
    service = Watching(lambda items: outlet.leave(0) if items == [1] else outlet.gone.clear())
    with closing(Executor(service, outlet)) as executor:
        for body in (b"1", b"1"):
            outlet.gone.clear()
            reply, _ = executor.run(batch_of("slow", body), [body])
            assert reply.statuses == [499]
        outlet.gone.clear()
        service.meanwhile = lambda items: items
        reply, _ = executor.run(batch_of("plain", b"1"), [b"1"])
    assert reply.statuses == [200]


def test_a_batch_that_all_have_left_stays_cancelled(outlet: Outlet) -> None:
    """Also for a thread of its handler that still asks after the reply."""
    departures = Departures(outlet, 1, 2)
    outlet.leave(0, 1)
    assert departures.all_left()

    outlet.gone.clear()  # as a reply does

    assert (departures.all_left(), departures.left(), departures.cancelled) == (True, set(), True)


def test_a_gateway_that_has_closed_its_end_cancels_nothing() -> None:
    """It may still read the reply."""
    seen: list[bool] = []

    def look(items: Items) -> Items:
        seen.append(context().cancelled)
        return items

    _, reply = ask(Outlet(enough=0), look)
    assert (seen, reply.statuses, learned(reply)) == ([False], [200, 200], True)


class Shared(Outlet):
    """An outlet from which another thread reads, as where several batches run at once."""

    def fileno(self) -> int:
        return -1


def test_clients_that_leave_after_the_timeout_do_not_interrupt_the_end_of_the_handler() -> None:
    ends: list[str] = []

    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)  # such as to close a connection
            ends.append("closed")

    async def main() -> None:
        loop, outlet = asyncio.get_running_loop(), Shared()
        task = loop.create_task(handle())
        watch = Watch(loop, task, Departures(outlet, 1, 1, due=time.monotonic() + 2.0))
        loop.call_later(2.1, outlet.leave, 0)
        with pytest.raises(asyncio.CancelledError):
            await task
        watch.end()

    run(main(), loop_factory=VirtualLoop)
    assert ends == ["closed"]


def test_tasks_do_not_hold_up_the_end_of_a_batch_past_its_timeout() -> None:
    """After a second the gateway would kill the worker, with its other batches."""
    kept: list[asyncio.Task[None]] = []

    async def stubborn() -> None:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def handle() -> None:
        kept.append(asyncio.create_task(stubborn()))
        await asyncio.Event().wait()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(handler_loop.create_task)
        departures = Departures(Shared(), 1, 1, due=time.monotonic())
        _, error = await handler_loop._supervise(loop, handle(), departures)
        assert isinstance(error, asyncio.CancelledError)
        assert loop.time() < 0.75
        assert not kept[0].done()

    run(main(), loop_factory=VirtualLoop)


class Staged(Service):
    """Notes the stages that run; all clients leave in ``leaves_in``."""

    def __init__(self, outlet: Outlet, leaves_in: str) -> None:
        self.outlet, self.leaves_in = outlet, leaves_in
        self.stages: list[str] = []

    def note(self, stage: str) -> None:
        self.stages.append(stage)
        if stage == self.leaves_in:
            self.outlet.leave(0)

    def before(self, items: Items) -> Items:
        self.note("prepare")
        return items

    def after(self, items: Items) -> Items:
        self.note("finish")
        return items

    @api(input=Json(), prepare=before, finish=after)
    def plain(self, items: Items) -> Items:
        self.note("handler")
        assert not context().cancelled or self.leaves_in == "handler"
        return items


@pytest.mark.parametrize(
    ("leaves_in", "stages"), [("prepare", ["prepare"]), ("handler", ["prepare", "handler"])]
)
def test_no_stage_begins_when_all_have_left(outlet: Outlet, leaves_in: str, stages: list[str]) -> None:
    service = Staged(outlet, leaves_in)
    with closing(Executor(service, outlet)) as executor:
        run = executor.in_stages(batch_of("plain", b"1"), [b"1"])
        assert run is not None
        run.call()
        run.finish()
        run.answer_parts()
    assert service.stages == stages
    assert (run.reply().statuses, run.reply().cancelled, run.reply().exceptions) == ([499], True, [])
