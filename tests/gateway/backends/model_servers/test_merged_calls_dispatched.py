"""The dispatcher in front of merged calls, and servers that die, hang and ask for a pause."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.gateway.backends.lines import bodies, sent, shout
from tests.gateway.backends.model_servers.fake_server import Call, Reply, fake_server
from tests.gateway.backends.model_servers.servers_stage import Slots, assert_no_task_left
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchTimedOut, RequestResult
from uncork_gateway.backends.model_servers.http_server import http_servers
from uncork_gateway.backends.model_servers.merged_calls import CallResult, MergedCalls, Sent
from uncork_gateway.backends.model_servers.server import read_addresses
from uncork_gateway.backends.model_servers.servers import Servers


class Listener:
    """Passes slots on to a dispatcher that is made later."""

    def __init__(self) -> None:
        self.dispatcher: AsyncDispatcher[Sent, CallResult] | None = None
        self.slots = Slots()

    def worker_ready(self, worker: int) -> None:
        assert self.dispatcher is not None
        self.dispatcher.worker_ready(worker)
        self.slots.worker_ready(worker)

    def worker_lost(self, worker: int) -> None:
        assert self.dispatcher is not None
        self.dispatcher.worker_lost(worker)
        self.slots.worker_lost(worker)

    def worker_retired(self, worker: int) -> None:
        assert self.dispatcher is not None
        self.dispatcher.worker_retired(worker)
        self.slots.worker_retired(worker)

    def health_changed(self) -> None:
        self.slots.health_changed()


@contextlib.asynccontextmanager
async def dispatching(*urls: str, timeout_s: float = 60) -> AsyncIterator[AsyncDispatcher[Sent, CallResult]]:
    listener = Listener()
    made = http_servers(read_addresses(urls), concurrency=1)
    servers = Servers(made, concurrency=1, timeout_s=60, listener=listener)
    merged = MergedCalls(servers)
    dispatcher = listener.dispatcher = AsyncDispatcher(merged)
    dispatcher.set_api(
        ApiRules(name="api", goal_s=60, max_batch_rows=8, policy="fixed:1", timeout_s=timeout_s)
    )
    servers.start()
    await listener.slots.number(len(urls))
    try:
        yield dispatcher
    finally:
        await dispatcher.drain()
        await merged.close()
        await servers.close()
        assert_no_task_left()


async def ask(dispatcher: AsyncDispatcher[Sent, CallResult], *texts: str) -> list[str]:
    """Return each caller's answer, or the name of its error."""
    calls = (dispatcher.call("api", one, rows=one.request.rows) for one in map(sent, texts))
    ends = await asyncio.gather(*calls, return_exceptions=True)
    return [bodies([end.result])[0] if isinstance(end, RequestResult) else type(end).__name__ for end in ends]


async def test_a_server_that_dies_in_a_call_is_replaced_by_another() -> None:
    def die(call: Call) -> Reply:
        dying.refuse()
        return Reply(b"A", missing=1)

    async with (
        fake_server(die) as dying,
        fake_server(shout) as healthy,
        dispatching(dying.url, healthy.url) as dispatcher,
    ):
        assert await ask(dispatcher, "a", "b") == ["A", "B"]
        assert await ask(dispatcher, "c", "d") == ["C", "D"]
        assert len(dying.calls) == 1


async def test_a_batch_that_takes_too_long_is_given_up_and_the_server_used_again() -> None:
    async with (
        fake_server(lambda call: None) as server,
        dispatching(server.url, timeout_s=0.01) as dispatcher,
    ):
        with pytest.raises(BatchTimedOut):
            await dispatcher.call("api", sent("a"))
        server.script = shout
        dispatcher.set_api(ApiRules(name="api"))
        assert await ask(dispatcher, "b") == ["B"]


async def test_a_server_that_asks_for_rest_while_requests_are_held() -> None:
    """The next batch goes to the other server; only the first batch gets the 503."""
    async with (
        fake_server(lambda call: Reply(b"busy", 503, ((b"retry-after", b"9"),))) as busy,
        fake_server(shout) as free,
        dispatching(busy.url, free.url) as dispatcher,
    ):
        answers = await ask(dispatcher, *(f"a{at}" for at in range(64)))
        assert sum(answer.startswith("503 ") for answer in answers) == 8
        assert len(set(answers)) == 57
        assert len(busy.calls) == 1
