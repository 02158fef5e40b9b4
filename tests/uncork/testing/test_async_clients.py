"""Asynchronous clients, streams, and services that cannot be run, with ``uncork.testing``."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.uncork.testing.digits import (
    ONE_IS_HELD,
    Digits,
    answered,
    nothing_is_left,
)
from uncork import DefinitionError, Service, api, context
from uncork.adapters import Json
from uncork.testing import async_client, client

__all__ = ["nothing_is_left"]


class Broken(Service):
    def setup(self) -> None:
        raise FileNotFoundError("no model")

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        return items


class Leaving(Broken):
    def setup(self) -> None:
        sys.exit("no model")


class Sticky(Broken):
    def setup(self) -> None: ...

    def teardown(self) -> None:
        raise OSError("sticky")


class Wrong(Broken):
    @api(input=Json(), policy="magic")
    def other(self, items: list[Any]) -> list[Any]:
        return items


class Empty(Service): ...


@pytest.mark.parametrize(
    ("service", "error", "message"),
    [
        (Broken, FileNotFoundError, "^no model$"),
        (Leaving, RuntimeError, "the service raised SystemExit: no model"),
        (Sticky, OSError, "sticky"),
        (Wrong, DefinitionError, "API 'other': policy: unknown policy 'magic'"),
        (Empty, DefinitionError, "service Empty has no API"),
        (Digits(), TypeError, "client.. takes a subclass of uncork.Service, got <"),
        ("service.py:Digits", TypeError, "client.. takes a subclass of uncork.Service, got 'service.py"),
    ],
)
async def test_a_service_that_cannot_be_run(service: Any, error: type[Exception], message: str) -> None:
    """Says why where it is run."""
    with pytest.raises(error, match=message), client(service):
        pass
    with pytest.raises(error, match=message):
        async with async_client(service):
            pass


async def test_asyncio() -> None:
    """Requests that are gathered share a batch, and the loop runs while a handler does."""
    async with async_client(Digits) as c:
        gathered = await asyncio.gather(*(c.post("/held", json=n) for n in range(8)))
        together = await c.post_all("/predict", json=[[n, n] for n in range(5)])
        with pytest.raises(KeyError, match="the culprit"):
            await c.post("/echo", json="raise")

    assert isinstance(c, httpx.AsyncClient)
    assert [reply.json() for reply in gathered] == [8] * 8
    assert {reply.headers["x-batch-size"] for reply in together} == {"5"}


async def test_a_task_that_is_cancelled_leaves_the_queue() -> None:
    """As a client that goes: the eighth row is another's."""
    async with async_client(Digits) as c:
        leaving = asyncio.create_task(c.post("/held", json=0))
        while ONE_IS_HELD not in (await c.get("/metrics")).text:
            pass
        leaving.cancel()
        replies = await c.post_all("/held", json=range(8))
        assert {reply.headers["x-batch-size"] for reply in replies} == {"8"}


async def test_a_request_that_cannot_be_sent_holds_nobody_up() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"1"
        raise ValueError("the body ends here")

    async with async_client(Digits) as c:
        requests = [
            c.build_request("POST", "/echo", json=1),
            c.build_request("POST", "/echo", content=broken()),
        ]
        with pytest.raises(ValueError, match="the body ends here"):
            await c.send_all(requests)
        assert answered("echo", 1) in (await c.get("/metrics")).text


async def test_requests_share_a_batch_however_long_their_bodies_take() -> None:
    async def slow() -> AsyncIterator[bytes]:
        for piece in (b'"', b"slow", b'"'):
            await asyncio.sleep(0)
            yield piece

    headers = {"content-type": "application/json"}
    async with async_client(Digits) as c:
        requests = [
            c.build_request("POST", "/echo", json=1),
            c.build_request("POST", "/echo", content=slow(), headers=headers),
        ]
        replies = await c.send_all(requests)
    assert [reply.json() for reply in replies] == [1, "slow"]
    assert [reply.headers["x-batch-size"] for reply in replies] == ["2", "2"]


class Telling(Service):
    """Streams the values that the test sets."""

    closed = 0

    @api(input=Json(), policy="none")
    async def tell(self, items: list[Any]) -> AsyncIterator[Any]:
        """Each, or what it stands for; without end if it is one number."""
        [words] = items
        try:
            for word in itertools.count(words) if isinstance(words, int) else words:
                await asyncio.sleep(0)
                if word == "raise":
                    raise KeyError("the culprit")
                yield {"word": word}
        finally:
            type(self).closed += 1


def test_what_is_streamed_is_read_whole() -> None:
    """With the client for threads, which has no other way; another policy for all does not batch it."""
    with client(Telling, policy="cork") as c:
        replies = c.post_all("/tell", json=[["a", "b"], ["c"]])

    assert [reply.text for reply in replies] == ['{"word":"a"}\n{"word":"b"}\n', '{"word":"c"}\n']
    assert {reply.headers["x-batch-size"] for reply in replies} == {"1"}


def test_a_stream_that_fails_raises_what_the_handler_raised() -> None:
    """In its middle too, where there is no answer any more that would say so."""
    with client(Telling) as c:
        for words in (["raise"], ["a", "raise"]):
            with pytest.raises(KeyError, match="the culprit"):
                c.post("/tell", json=words)
        assert c.post("/tell", json=["a"]).status_code == 200
    with (
        client(Telling, raise_handler_errors=False) as c,
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
    ):
        c.post("/tell", json=["a", "raise"])


async def test_an_asynchronous_client_streams() -> None:
    async with async_client(Telling) as c:
        before = Telling.closed
        async with c.stream("POST", "/tell", json=5) as reply:
            lines = reply.aiter_lines()
            assert [await anext(lines) for _ in range(2)] == ['{"word":5}', '{"word":6}']
        # There is one worker: who is answered comes after the end of the one before.
        assert (await c.post("/tell", json=[])).content == b""
        assert Telling.closed == before + 2


class Counting(Service):
    @api(input=Json(), headers=("x-tenant", "x-request-id"))
    def predict(self, items: list[Any]) -> list[Any]:
        context().count("rows", len(items), kind="whole")
        context().observe("sizes", len(items))
        return [f"{tenant} {name}" for tenant, name in zip(*context().headers.values(), strict=True)]


def test_what_handlers_read_and_record() -> None:
    with client(Counting) as c:
        reply = c.post("/predict", json=[1, 2], headers={"X-Tenant": "me", "X-Request-Id": "one"})
        lines = c.get("/metrics").text.splitlines()

    assert (reply.json(), reply.headers["x-request-id"]) == ("me one", "one")
    labels = 'api="predict",kind="whole",service="counting"'
    assert f"app_rows_total{{{labels}}} 1.0" in lines
    assert 'app_sizes_bucket{api="predict",le="1.0",service="counting"} 1.0' in lines
