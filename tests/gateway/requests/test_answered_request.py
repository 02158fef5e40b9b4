"""What requests leave in memory when they have been answered, while their connections stay open."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.gateway.client import Connection, Server, request
from tests.gateway.requests.stream_stage import StreamStage
from tests.gateway.running import turns
from tests.gateway.stage import RULES, Stage
from uncork_gateway.codecs import codec_of, grouping, make_codec
from uncork_gateway.dialects import TEXT_MODELS, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.coalescing import Coalescing
from uncork_workers.wire.schema import ApiDescription

LONG = "x" * 100_000
GROUPED = ApiDescription(name="echo", route="/", input={"kind": "json"}, group_by="g")
Ask = Callable[[], Awaitable[None]]


def asking(server: Server, body: Any, *, clients: int = 1) -> Ask:
    """Return a function that lets clients send one request each, on connections that stay open."""
    connections = [Connection(server) for _ in range(clients)]

    async def ask() -> None:
        for connection in connections:
            connection.send(request(msgspec.json.encode(body)))
        await turns(20)
        for connection in connections:
            assert not connection.closed
            assert connection.received
            connection.received = b""

    return ask


def staged(stage: Stage, body: Any, **arguments: Any) -> Ask:
    """Return a function that lets clients send a request to a stage, which forgets it."""
    route = stage.route
    route.max_body_bytes = 2**20
    ask = asking(stage.server, body, **arguments)

    async def ask_once() -> None:
        await ask()
        stage.runner.jobs.clear()
        stage.runner.batches.clear()

    return ask_once


async def alone() -> Ask:
    return staged(Stage(), LONG)


async def refused_by_worker() -> Ask:
    stage = Stage()
    stage.runner.reply = lambda body: HandlerResult(422, body)
    return staged(stage, LONG)


async def shed() -> Ask:
    stage = Stage(rules=replace(RULES, max_queue_rows=1))
    stage.runner.gate.clear()
    for body in (b"1", b"2"):
        Connection(stage.server).send(request(body))
        await turns()
    return staged(stage, LONG)


async def of_groups() -> Ask:
    stage = Stage(dialect=Rest(codec_of(GROUPED), kserve=False), grouping=grouping(GROUPED))
    return staged(stage, {"instances": [{"g": group, "text": LONG} for group in "abc"]})


def coalescing(stage: Stage) -> Stage:
    route = stage.route
    route.coalescing = Coalescing(stage.dispatcher, RULES, route.tally_of)
    return stage


async def coalesced() -> Ask:
    return staged(coalescing(Stage()), LONG, clients=3)


async def coalesced_in_parts() -> Ask:
    stage = coalescing(Stage(dialect=TEXT_MODELS["embeddings"](make_codec({"kind": "json"}))))
    stage.dispatcher.profile("echo", 0, [(rows, 0.01 * rows) for rows in (1, 8, 64)])
    stage.runner.reply = lambda body: HandlerResult(
        200, b",".join([b'{"embedding":[],"tokens":1}'] * len(msgspec.json.decode(b"[%b]" % body)))
    )
    return staged(stage, {"input": [LONG[:1000]] * 100}, clients=2)


async def streamed() -> Ask:
    stage = StreamStage()
    route: Any = stage.server.routes.handlers[b"/"]
    route.max_body_bytes = 2**20
    connection = Connection(stage.server)

    async def ask() -> None:
        connection.send(request(msgspec.json.encode(LONG)))
        await turns()
        [running] = stage.running
        running.send(b"a")
        running.end()
        assert connection.received.endswith(b"0\r\n\r\n")
        connection.received = b""
        stage.running.clear()

    return ask


@pytest.mark.parametrize(
    "prepare", [alone, refused_by_worker, shed, of_groups, coalesced, coalesced_in_parts, streamed]
)
async def test_an_answered_request_leaves_nothing_to_the_garbage_collector(
    prepare: Callable[[], Awaitable[Ask]],
) -> None:
    """The collector runs rarely: memory would grow with requests, outside all limits."""
    ask = await prepare()
    await ask()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        await ask()
        held_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held_bytes < len(LONG) / 2
