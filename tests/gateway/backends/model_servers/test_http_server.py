"""One HTTP server: headers, Retry-After."""

import asyncio
import contextlib
import errno
import math
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from random import Random
from typing import Any

import httpcore._backends.anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from tests.gateway.backends.model_servers.servers_stage import Slots
from tests.gateway.running import turns
from tests.loops import run
from tests.simulation.network import End, Network, SimulatedLoop
from uncork_gateway.backends.model_servers.http_server import (
    HttpServer,
    http_servers,
    make_transport,
    read_retry_after_s,
)
from uncork_gateway.backends.model_servers.server import ConnectionLost, NoAnswerInTime
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.errors import TimedOut
from uncork_gateway.interfaces import BodyPool
from uncork_gateway.protocols.wire import Content
from uncork_gateway.requests.pass_through import PassThrough

URL = "http://127.0.0.1:1"
NOW = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


def retry_after(value: bytes) -> float:
    """Return the seconds that a Retry-After means."""
    return read_retry_after_s([(b"date", b"17"), (b"retry-after", value)], now=NOW)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7),
        (b"0", 0),
        (b"3600", 30),
        (b"9" * 5000, 30),
        (b"-1", 0),
        (b"1.5", 0),
        (b"soon", 0),
        (b"", 0),
        (b"Thu, 29 Feb 2024 12:00:12 GMT", 12),
        (b"Thu, 29 Feb 2024 12:00:12 -0000", 12),
        (b"Thu, 29 Feb 2024 11:59:59 GMT", 0),
        (b"Fri, 01 Mar 2024 12:00:00 GMT", 30),
        (b"Thu, 32 Feb 2024 12:00:12 GMT", 0),
        (b"Thu, 29 Feb 99999999999999999999 12:00:12 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: bytes, seconds: float) -> None:
    """Limited to 0 to 30 s; an invalid value counts as 0."""
    assert retry_after(value) == seconds


class ResetWhileConnecting:
    """A pool whose new connection is reset before it looks at it; httpx passes on the error as it is."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle_async_request(self, request: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOTCONN, "Transport endpoint is not connected"),
        # uvloop has closed the socket already.
        AttributeError("'NoneType' object has no attribute 'getpeername'"),
    ],
)
async def test_a_connection_that_is_reset_at_once_is_lost(error: Exception) -> None:
    transport = make_transport(httpx.URL(URL), httpx.Limits())
    transport._pool = ResetWhileConnecting(error)  # type: ignore[assignment]
    server = HttpServer(url=URL, address=httpx.URL(URL), transport=transport)
    with pytest.raises(ConnectionLost, match=r"lost at once: .*(not connected|getpeername)"):
        await server.exchange(b"/", Content(b""), silence_s=1.0, time_left_s=1.0, idempotent=True)


@given(st.integers(-100, 100), st.integers(-12, 12))
def test_a_date_means_the_same_as_seconds(seconds: int, zone: int) -> None:
    when = (NOW + timedelta(seconds=seconds)).astimezone(tz=_zone(zone))
    assert retry_after(format_datetime(when).encode()) == min(max(seconds, 0), 30)


@given(st.binary(max_size=40) | st.text("0123456789 ,:-+GMTadeFNovJan", max_size=40).map(str.encode))
def test_any_retry_after_is_from_0_to_30(value: bytes) -> None:
    """No value raises an error."""
    assert 0 <= retry_after(value) <= 30


def _zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


class InASecond(asyncio.Protocol):
    """A connection of a server that counts its calls, and perhaps answers each after a second."""

    def __init__(self, answer: bytes, calls: list[bytes]) -> None:
        self._answer, self._calls = answer, calls

    def connection_made(self, transport: Any) -> None:
        self._end = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            self._calls.append(data)
            asyncio.get_running_loop().call_later(1.0, self._end.write, self._answer)


async def left_early(passing: PassThrough, leaving: asyncio.Event) -> None:
    """Relay a request whose client leaves."""

    async def receive() -> Message:
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        """Nobody reads it."""

    scope = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [],
        "path": "/",
    }
    await passing(scope, receive, send)


@pytest.mark.parametrize("way", ["merged", "relayed", "streamed"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"])
def test_a_call_may_be_cancelled_in_any_turn_of_the_loop(
    answer: bytes, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while its connection is closed, or goes back to the pool: no connection is open without a use."""
    monkeypatch.setattr(httpcore._backends.anyio, "is_socket_readable", lambda socket: socket.end.is_readable)
    silence_s = 5.0 if answer else 1.0
    loop, calls = SimulatedLoop(), list[bytes]()
    network = Network(loop)

    async def connect(protocol: Any) -> End:
        return network.connect("server", InASecond(answer, calls), protocol, Random(117))  # one without delay

    async def main() -> None:
        [server] = http_servers([httpx.URL("http://10.0.0.1")], concurrency=1)
        server.healthy = True
        servers = Servers([server], concurrency=1, timeout_s=silence_s, listener=Slots())
        listener = ListenerContext(pool=BodyPool(0))
        passing = PassThrough(servers, listener, timeout_s=silence_s, max_body_bytes=1)
        for count in range(30):
            options: Any = {"silence_s": silence_s, "time_left_s": math.inf, "idempotent": False}
            leaving = asyncio.Event()
            asking: Coroutine[Any, Any, object]
            match way:
                case "merged":
                    asking = server.exchange(b"/", Content(b"x"), **options)
                case "relayed":
                    asking = passing.relay(b"/", (), b"x")
                case _:
                    asking = left_early(passing, leaving)
            call = asyncio.create_task(asking)
            await asyncio.sleep(1.0)
            assert len(calls) == count + 1
            await turns(count)
            leaving.set() if way == "streamed" else call.cancel()
            with contextlib.suppress(asyncio.CancelledError, NoAnswerInTime, TimedOut):
                await call
        await turns()
        assert len([end for end in network.ends if end.is_client and end.lost_at is None]) <= bool(answer)
        await passing.close()
        await server.close()

    loop.hosts["10.0.0.1"] = connect
    run(main(), loop_factory=lambda: loop)
