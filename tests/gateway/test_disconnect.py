"""Noticing that a client has left, on both event loops."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from uncork_gateway.disconnect import ClientGone, DisconnectWatch

from .asgi import DISCONNECT
from .running import run, turns

Message = dict[str, Any]
Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """Give each event loop that the gateway may run on."""
    chosen: Runner = request.param
    return chosen


class Connection:
    """A client's end: ``receive`` waits until it leaves, and notes when the wait for it ends."""

    def __init__(self, message: Message | None = None) -> None:
        self._stirred = asyncio.Event()
        self._left = asyncio.Event()
        self._message = message or dict(DISCONNECT)
        self.closed = False

    def stir(self) -> None:
        """Have ``receive`` look, and wait on."""
        self._stirred.set()

    def leave(self) -> None:
        """Have ``receive`` return."""
        self._stirred.set()
        self._left.set()

    async def receive(self) -> Message:
        """Wait in two steps, as a server may."""
        try:
            await self._stirred.wait()
            await self._left.wait()
            return self._message
        finally:
            self.closed = True


class Request:
    """A request that waits for an answer under a watch, as the hot route has it."""

    def __init__(self, connection: Connection) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._serve(connection))

    async def _serve(self, connection: Connection) -> str:
        try:
            with DisconnectWatch(connection.receive) as self.watch:  # kept, to see that it is closed
                return await self.answer
        except ClientGone:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0, "what cancelled it has been dealt with"
            return "gone"


def test_a_client_that_leaves_ends_the_wait(runner: Runner) -> None:
    """The task is cancelled where it waits, and can see why."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()
        assert not request.task.done()

        connection.leave()

        assert await request.task == "gone"
        assert request.answer.cancelled()
        assert connection.closed

    run(scenario(), runner=runner)


def test_a_server_may_wait_for_several_things(runner: Runner) -> None:
    """The client is noticed at the last of them, and the watch can end at any."""

    async def scenario() -> None:
        leaving, staying = Connection(), Connection()
        first, second = Request(leaving), Request(staying)
        await turns()
        leaving.stir()
        staying.stir()
        await turns()
        assert not first.task.done()

        leaving.leave()
        second.answer.set_result("answer")

        assert await first.task == "gone"
        assert await second.task == "answer"
        assert staying.closed

    run(scenario(), runner=runner)


def test_an_answer_ends_the_watch(runner: Runner) -> None:
    """What comes after is nobody's business, and nothing of the watch is left behind."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()

        request.answer.set_result("answer")

        assert await request.task == "answer"
        assert connection.closed
        connection.leave()
        await turns()

    run(scenario(), runner=runner)


def test_an_answer_leaves_nothing_with_the_server(runner: Runner) -> None:
    """A future that lives as long as the connection does not remember the requests that waited for it."""

    async def scenario() -> None:
        news: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive() -> Message:
            return await news

        async def serve() -> None:
            with DisconnectWatch(receive):
                await asyncio.sleep(0)

        task = asyncio.create_task(serve())
        remembered = weakref.ref(task)
        await task
        del task
        await turns()  # the loop itself remembers it for a turn
        gc.collect()

        assert remembered() is None
        assert not news.done()

    run(scenario(), runner=runner)


def test_an_error_ends_the_watch_too(runner: Runner) -> None:
    """It comes out as it was."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()

        request.answer.set_exception(KeyError("x"))

        with pytest.raises(KeyError):
            await request.task
        assert connection.closed

    run(scenario(), runner=runner)


def test_answer_then_leaving_in_one_turn(runner: Runner) -> None:
    """The wait is over before the news of the client comes; the task that goes on is not cancelled."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()

        request.answer.set_result("answer")
        connection.leave()

        assert await request.task == "answer"
        await turns()
        assert connection.closed

    run(scenario(), runner=runner)


def test_leaving_then_answer_in_one_turn(runner: Runner) -> None:
    """Whichever the request notices, it ends, once, and nothing is left behind."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()

        connection.leave()
        request.answer.set_result("answer")

        ended = await request.task
        await turns()
        assert ended in ("gone", "answer")
        assert connection.closed

    run(scenario(), runner=runner)


def test_a_client_that_has_left_already(runner: Runner) -> None:
    """Its disconnect is there at once; nothing is begun, and the task goes on."""

    async def scenario() -> None:
        async def receive() -> Message:
            return dict(DISCONNECT)

        async def serve() -> None:
            with pytest.raises(ClientGone), DisconnectWatch(receive):
                pytest.fail("nobody is there to be served")
            await asyncio.sleep(0)  # the task that goes on is not cancelled

        await asyncio.create_task(serve())

    run(scenario(), runner=runner)


def test_a_message_that_is_no_disconnect_is_no_reason_to_stop(runner: Runner) -> None:
    """Such as an empty piece of body from a server that is late with it."""

    async def scenario() -> None:
        connection = Connection({"type": "http.request", "body": b"", "more_body": False})
        request = Request(connection)
        await turns()

        connection.leave()
        await turns()
        assert not request.task.done()
        request.answer.set_result("answer")

        assert await request.task == "answer"

    run(scenario(), runner=runner)


def test_being_cancelled_is_not_a_client_that_leaves(runner: Runner) -> None:
    """A server that stops cancels its requests; they must not take it for something else."""

    async def scenario() -> None:
        connection = Connection()
        request = Request(connection)
        await turns()

        request.task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await request.task
        assert connection.closed

    run(scenario(), runner=runner)


def test_a_server_may_let_the_loop_go_round(runner: Runner) -> None:
    """To await ``asyncio.sleep(0)`` is to wait for no future at all, and fine in any coroutine."""

    async def scenario() -> None:
        class Polite(Connection):
            async def receive(self) -> Message:
                await asyncio.sleep(0)
                return await super().receive()

        connection = Polite()
        request = Request(connection)
        await turns()
        assert not request.task.done()

        connection.leave()

        assert await request.task == "gone"

    run(scenario(), runner=runner)
