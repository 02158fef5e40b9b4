"""A whole proxy: clients whose requests arrive in one turn of the loop, and model servers on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.gateway.backends.model_servers.fake_server import Call
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.client import JSON, Connection, Reply, Server, request
from tests.gateway.protocols import v2_bodies
from tests.gateway.running import turns
from tests.loops import HANG_S
from uncork_gateway import Gateway
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.protocols.wire import Content
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings

Header = tuple[bytes, bytes]
Script = Callable[[Call], Answer]

V1 = b"/v1/models/m:predict"
V2 = b"/v2/models/m/infer"
BAD = -1


class Model:
    """An ASGI application that records its requests, and answers by a script once its gate is open."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._called = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        body = await Request(scope, receive).body()
        call = Call(scope["method"].encode(), target, tuple(scope["headers"]), body, 0)
        self.calls.append(call)
        self._called.set()
        await self.gate.wait()
        answer = self.script(call)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def called(self, times: int) -> None:
        """Wait until there were this many calls."""
        while len(self.calls) < times:
            self._called.clear()
            await self._called.wait()

    def bodies(self) -> list[Any]:
        return [json.loads(call.body) for call in self.calls]


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application on a port, without headers of the server's own; yield its address."""
    server, state, port = await _listen(app, HttpToolsProtocol)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await _hang_up(server, state)


async def _listen(app: Any, protocol: Callable[..., Any]) -> tuple[asyncio.Server, Any, int]:
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, interface="asgi3", server_header=False, date_header=False
    )
    config.load()
    state = uvicorn.Server(config).server_state
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    return server, state, server.sockets[0].getsockname()[1]


async def _hang_up(server: asyncio.Server, state: Any) -> None:
    server.close()
    for task in list(state.tasks):
        task.cancel()
    for connection in list(state.connections):
        connection.transport.abort()
    await turns()


class Front(Server):
    """Accepts clients without sockets, for a proxy or a gateway."""

    def __init__(self, front: Gateway | Proxy) -> None:
        super().__init__({}, app=front.front_end.app)
        self._front = front

    def protocol(self) -> HttpProtocol:
        return self._front.front_end.protocol(config=self.config, server_state=self.state, app_state={})

    def ask(self, body: bytes, target: bytes = V1, *headers: Header) -> Caller:
        """Send a request in this turn of the loop."""
        caller = Caller(self)
        caller.send(request(body, path=target, headers=(JSON, *headers)))
        return caller


class Caller(Connection):
    """A client on a connection of its own that can wait for its reply."""

    def __init__(self, server: Server) -> None:
        self._news = asyncio.Event()
        super().__init__(server)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        super().write(data)
        self._news.set()

    async def reply(self) -> Reply:
        while not self.replies():
            self._news.clear()
            await self._news.wait()
        [reply] = self.replies()
        return reply


class ProxyStage:
    """A proxy, clients without sockets (``front``), and a client on a socket (``http``)."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy = proxy
        self.port = port
        self.front = Front(proxy)
        self.ask = self.front.ask
        self.http = httpx.AsyncClient(
            timeout=HANG_S, base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False
        )

    async def replies(self, callers: Sequence[Caller]) -> list[Reply]:
        return [await caller.reply() for caller in callers]


@contextlib.asynccontextmanager
async def proxy(*urls: str, healthy: bool = True, **settings: Any) -> AsyncIterator[ProxyStage]:
    """A proxy in front of servers, of which one is ``healthy`` before this returns.

    By default, the requests of one turn of the loop are released in the next.
    """
    made = Proxy(urls, ProxySettings(**{"policy": "fixed:0", **settings}))
    made.start()
    server, state, port = await _listen(made.front_end.app, made.front_end.protocol)
    on = ProxyStage(made, port)
    try:
        if healthy:
            await made.front_end.ready.wait()
            await turns()
        yield on
    finally:
        await on.http.aclose()
        await _hang_up(server, state)
        await made.close()
        await turns()


# Models


def rows_body(*rows: Any, **others: Any) -> bytes:
    """A V1 request."""
    return json.dumps({"instances": rows, **others}).encode()


def doubles(call: Call) -> Answer:
    """A V1 model that doubles every row; a row that is ``BAD`` makes a call fail with 400."""
    rows = json.loads(call.body)["instances"]
    if BAD in rows:
        return Answer(b'{"error": "a bad row"}', 400, (JSON,))
    return Answer(json.dumps({"predictions": [row * 2 for row in rows]}).encode(), 200, (JSON,))


def reverses(call: Call) -> Answer:
    """A V2 model that reverses every row."""
    outputs = ["flat"] * call.body.count(b'"shape"')
    content = v2_bodies.serve(Content(call.body, call.headers), outputs)
    return Answer(content.body, 200, content.headers)


def infer(*values: int, **others: Any) -> bytes:
    """A V2 request of one column."""
    return v2_bodies.request(v2_bodies.ints(*values), **others).body


@contextlib.asynccontextmanager
async def merging(script: Script = doubles, **options: Any) -> AsyncIterator[tuple[ProxyStage, Model]]:
    """A proxy and the only server behind it."""
    model = Model(script)
    async with served(model) as url, proxy(url, **options) as on:
        yield on, model


def sizes(model: Model) -> list[int]:
    """Return the rows of each call to a V1 model."""
    return [len(body["instances"]) for body in model.bodies()]


def predictions(reply: Reply) -> Any:
    """Return the predictions of a V1 reply; fail unless it is 200 and of the batch in its headers."""
    assert reply.status == 200, reply
    told = json.loads(reply.body)
    assert told == {
        "message": "",
        "batchId": reply.headers["x-batch-id"],
        "predictions": told["predictions"],
    }
    return told["predictions"]


def error(reply: Reply | httpx.Response, status: int) -> str:
    """Return the message of an error; fail if the reply is not one of that status."""
    got, body = (reply.status, reply.body) if isinstance(reply, Reply) else (reply.status_code, reply.content)
    assert got == status, reply
    assert reply.headers["content-type"] == "application/json"
    told: dict[str, str] = json.loads(body)
    assert list(told) == ["error"]
    return told["error"]
