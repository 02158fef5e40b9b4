"""One write per reply, over a fake transport and over real connections."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import uvicorn

from uncork_gateway.http import GatheringTransport, HttpProtocol

from .running import run


class FakeTransport(asyncio.Transport):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Note the bytes."""
        self.told.append(bytes(data))

    def close(self) -> None:
        """Note the close."""
        self.told.append("close")

    def abort(self) -> None:
        """Note the abort."""
        self.told.append("abort")

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return "close" in self.told or "abort" in self.told


def gathering() -> tuple[FakeTransport, GatheringTransport]:
    """A fake, and the transport under test over it."""
    below = FakeTransport()
    return below, GatheringTransport(below, asyncio.get_running_loop())


def test_what_is_written_in_one_turn_is_one_write() -> None:
    """Head and body go out together at the end of the turn, the next turn's apart."""

    async def scenario() -> None:
        below, transport = gathering()
        transport.write(b"head ")
        transport.writelines([b"bo", b"dy"])
        assert below.told == []

        await asyncio.sleep(0)
        assert below.told == [b"head body"]
        transport.write(b"next")
        await asyncio.sleep(0)

        assert below.told == [b"head body", b"next"]

    run(scenario())


def test_much_is_passed_on_at_once() -> None:
    """So that the transport below can say that the client reads too slowly."""

    async def scenario() -> None:
        below, transport = gathering()
        large = b"x" * 70_000
        transport.write(b"head ")
        transport.write(large)
        assert below.told == [b"head " + large]

        transport.write(b"rest")
        await asyncio.sleep(0)

        assert below.told == [b"head " + large, b"rest"]

    run(scenario())


def test_closing_sends_what_is_held_first() -> None:
    """And nothing after."""

    async def scenario() -> None:
        below, transport = gathering()
        transport.write(b"last")
        transport.close()
        transport.write(b"too late")
        await asyncio.sleep(0)

        assert below.told == [b"last", "close"]
        assert transport.is_closing()

    run(scenario())


def test_aborting_drops_what_is_held() -> None:
    """Nothing is written to a connection that is gone."""

    async def scenario() -> None:
        below, transport = gathering()
        transport.write(b"last")
        transport.abort()
        await asyncio.sleep(0)

        assert below.told == ["abort"]

    run(scenario())


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_replies_arrive_whole_over_a_real_connection(size: int) -> None:
    """Small, empty and large replies, several on one connection."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]}
        )
        await send({"type": "http.response.body", "body": b"x" * size})

    async def scenario() -> None:
        config = uvicorn.Config(app, lifespan="off", log_config=None)
        config.load()
        state = uvicorn.Server(config).server_state
        server = await asyncio.get_running_loop().create_server(
            lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        async with server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for _ in range(3):
                assert (await client.get("/")).content == b"x" * size

    run(scenario())
