"""Requests that are handled at the end of a turn of the loop, and replies that are sent together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.client import Connection, Server
from tests.gateway.connection.test_protocol import CLOSE, Echo, EchoRequest, bodies, hot, serving
from tests.gateway.running import turns
from uncork_gateway import interfaces
from uncork_gateway.connection.bursts import SMALL_BYTES

ONE = (b"x", b"1")


async def known(echo: Echo, count: int, *bodies: bytes) -> tuple[Server, list[Connection]]:
    """A server that knows the heads of requests with these bodies, and connections to it."""
    server = serving(echo)
    teacher = Connection(server)
    for body in bodies:
        teacher.send(hot(body, ONE))
        echo.answer()
    await turns()
    assert len(server.routes.known) == len(bodies)
    return server, [Connection(server) for _ in range(count)]


async def test_the_first_request_of_a_turn_is_handled_at_once_and_the_others_at_its_end() -> None:
    _, connections = await known(Echo(), 3, b"ab")
    for at, connection in enumerate(connections):
        connection.send(hot(b"a%d" % at, ONE))
    assert [bodies(connection) for connection in connections] == [[b"a0"], [], []]
    await turns()
    assert [bodies(connection) for connection in connections] == [[b"a0"], [b"a1"], [b"a2"]]
    connections[2].send(hot(b"b2", ONE))
    assert bodies(connections[2]) == [b"a2", b"b2"]


@pytest.mark.parametrize(
    ("data", "replies"),
    [
        (hot(b"bb", ONE), [b"aa", b"bb"]),
        (hot(b"other", (b"x", b"2")), [b"aa", b"other"]),
        (None, [b"aa"]),
    ],
    ids=["known", "parsed", "end"],
)
async def test_a_request_that_waits_is_handled_before_all_else_on_its_connection(
    data: bytes | None, replies: list[bytes]
) -> None:
    """``data`` is what the client sends next; None: it sends no more."""
    _, (first, second) = await known(Echo(), 2, b"ab")
    first.send(hot(b"00", ONE))
    second.send(hot(b"aa", ONE))
    if data is None:
        second.end()
    else:
        second.send(data)
    await turns()
    assert (bodies(second), second.closed) == (replies, data is None)


async def test_a_request_that_waits_is_answered_although_the_server_stops() -> None:
    echo = Echo()
    _, (first, second) = await known(echo, 2, b"ab")
    echo.at_once = False
    first.send(hot(b"00", ONE))
    second.send(hot(b"aa", ONE))
    second.protocol.shutdown()
    assert not second.closed
    echo.answer()
    assert bodies(second) == [b"aa"]
    assert second.closed


async def test_a_request_whose_client_has_left_is_not_handled() -> None:
    echo = Echo()
    _, (first, second, third) = await known(echo, 3, b"ab")
    for connection in (first, second, third):
        connection.send(hot(b"aa", ONE))
    second.leave()
    await turns()
    assert (bodies(third), echo.whole, echo.left) == ([b"aa"], 2, 0)


class Faulty(Echo):
    """Cannot open requests."""

    fails = False

    def open(self, connection: interfaces.Connection, head: bytes, *, keep_alive: bool) -> EchoRequest:
        """Raise, if the test says so."""
        if self.fails:
            self.fails = False
            raise RuntimeError("a fault of the handler")
        return super().open(connection, head, keep_alive=keep_alive)


async def test_a_fault_closes_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    echo = Faulty()
    _, (first, second, third) = await known(echo, 3, b"ab")
    for connection in (first, second, third):
        connection.send(hot(b"aa", ONE))
    echo.fails = True
    await turns()
    assert (second.closed, bodies(second), bodies(third)) == (True, [], [b"aa"])
    assert "a fault of the handler" in caplog.text


async def test_large_requests_do_not_wait() -> None:
    large = b"x" * SMALL_BYTES
    _, (first, second) = await known(Echo(), 2, b"ab", large)
    first.send(hot(b"aa", ONE))
    second.send(hot(large, ONE))
    assert bodies(second) == [large]


class Answered:
    """Connections with an unanswered request each."""

    def __init__(self, server: Server, echo: Echo, connections: list[Connection]) -> None:
        self.bursts = server.listener.bursts
        self.echo = echo
        self.connections = connections

    def received(self) -> list[int]:
        """The number of replies on each connection."""
        return [len(connection.replies()) for connection in self.connections]


async def answered(count: int, body: bytes = b"ab", *headers: Any) -> Answered:
    """Clients whose requests a handler has not answered yet."""
    echo = Echo(at_once=False)
    server = serving(echo)
    connections = [Connection(server) for _ in range(count)]
    for connection in connections:
        connection.send(hot(body, ONE, *headers))
    await turns()
    return Answered(server, echo, connections)


async def test_replies_are_sent_after_all_have_been_written() -> None:
    clients = await answered(3)
    with clients.bursts:
        clients.echo.answer()
        assert clients.received() == [0, 0, 0]
    assert clients.received() == [1, 1, 1]
    clients.connections[0].send(hot(b"cd", ONE))
    clients.echo.answer()
    assert clients.received() == [2, 1, 1]


async def test_no_reply_waits_for_more_than_63_others() -> None:
    clients = await answered(65)
    with clients.bursts:
        clients.echo.answer()
        assert clients.received() == [1] * 64 + [0]
    assert clients.received() == [1] * 65


async def test_large_replies_do_not_wait() -> None:
    clients = await answered(1, b"x" * SMALL_BYTES)
    with clients.bursts:
        clients.echo.answer()
        assert clients.received() == [1]


async def test_a_reply_that_ends_its_connection_does_not_wait() -> None:
    clients = await answered(1, b"ab", CLOSE)
    with clients.bursts:
        clients.echo.answer()
        assert (clients.received(), clients.connections[0].closed) == ([1], True)


async def test_replies_on_one_connection_stay_in_order() -> None:
    clients = await answered(1)
    [connection] = clients.connections
    connection.send(hot(b"cd", ONE) + b"not HTTP\r\n\r\n")
    with clients.bursts:
        clients.echo.answer()
        clients.echo.answer()
    assert [reply.status for reply in connection.replies()] == [200, 200, 400]


async def test_a_reply_does_not_wait_if_more_of_its_connection_is_to_be_parsed() -> None:
    """A request that is parsed after it may be answered at once, and the last on its connection."""
    clients = await answered(1)
    [connection] = clients.connections
    connection.send(hot(b"cd", ONE) + hot(b"ef", (b"x", b"y" * 2000), CLOSE))
    clients.echo.at_once = True
    with clients.bursts:
        clients.echo.answer()
    assert bodies(connection) == [b"ab", b"cd", b"ef"]


async def test_replies_are_sent_although_an_answer_raises() -> None:
    clients = await answered(2)

    def answer_and_raise() -> None:
        with clients.bursts:
            clients.echo.answer()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        answer_and_raise()
    assert clients.received() == [1, 1]


async def test_replies_are_sent_although_another_client_has_left() -> None:
    clients = await answered(3)
    with clients.bursts:
        clients.echo.answer()
        clients.connections[1].leave()
    assert clients.received() == [1, 0, 1]
