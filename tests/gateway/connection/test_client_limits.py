"""Input that clients may not send, and the replies: broken HTTP, too much of it, ends in the middle."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.client import Connection, Server
from tests.gateway.connection.test_protocol import Echo, hot, plain, serving
from tests.gateway.running import turns
from tests.gateway.stage import LIMIT_BYTES, Stage, reason
from uncork_gateway.connection.client_limits import MOST_REFUSED, ClientLimits
from uncork_gateway.connection.listener_context import OpenConnections

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LONG = b"x" * 70_000


def head(*lines: bytes, start: bytes = b"POST / HTTP/1.1", body: bytes = b"") -> bytes:
    """A request, line by line."""
    return b"\r\n".join((start, b"host: test", *lines, b"", body))


def sized(*lines: bytes, start: bytes = b"POST / HTTP/1.1") -> bytes:
    return head(*lines, b"content-length: 1", start=start, body=b"1")


def chunked(body: bytes, *lines: bytes, start: bytes = b"POST / HTTP/1.1") -> bytes:
    return head(*lines, b"transfer-encoding: chunked", start=start, body=body)


ONE_CHUNK = b"1\r\n1\r\n0\r\n"

# The input, the answer, and whether the connection then stays open.
TABLE = {
    # Length of a body
    "same length twice": (head(b"content-length: 1", b"content-length: 1", body=b"1"), 400, False),
    "two lengths": (head(b"content-length: 1", b"content-length: 2", body=b"1"), 400, False),
    "list of lengths": (head(b"content-length: 1, 1", body=b"1"), 400, False),
    "negative length": (head(b"content-length: -1", body=b"1"), 400, False),
    "length with sign": (head(b"content-length: +1", body=b"1"), 400, False),
    "length in hex": (head(b"content-length: 0x1", body=b"1"), 400, False),
    "no digits": (head(b"content-length:", body=b"1"), 400, False),
    "huge length": (head(b"content-length: " + b"9" * 30, body=b"1"), 400, False),
    "many zeros": (head(b"content-length: " + b"0" * 5000 + b"1", body=b"1"), 400, False),
    "length over the limit": (head(b"content-length: %d" % (LIMIT_BYTES + 1)), 413, False),
    "length and chunks": (chunked(ONE_CHUNK + b"\r\n", b"content-length: 1"), 400, False),
    "neither": (head(), 400, True),
    # Chunks
    "chunks": (chunked(ONE_CHUNK + b"\r\n"), 200, True),
    "trailers": (chunked(ONE_CHUNK + b"x: y\r\nx-request-timeout-ms: no\r\n\r\n"), 200, True),
    "length in a trailer": (chunked(ONE_CHUNK + b"content-length: 9\r\n\r\n"), 400, False),
    "encoding in a trailer": (chunked(ONE_CHUNK + b"transfer-encoding: chunked\r\n\r\n"), 400, False),
    "connection in a trailer": (chunked(ONE_CHUNK + b"Connection: close\r\n\r\n"), 400, False),
    "proxy connection in a trailer": (chunked(ONE_CHUNK + b"proxy-connection: close\r\n\r\n"), 400, False),
    "offer in a trailer": (chunked(ONE_CHUNK + b"upgrade: h2c\r\nkeep-alive: 1\r\n\r\n"), 200, True),
    "endless trailer": (chunked(ONE_CHUNK + b"x: " + LONG * 2), 431, False),
    "chunk extension": (chunked(b"1;a=b\r\n1\r\n0\r\n\r\n"), 200, True),
    "endless extension": (chunked(b"1;a=" + LONG * 2), 431, False),
    "size of chunk": (chunked(b"zz\r\n1\r\n0\r\n\r\n"), 400, False),
    "no end of chunk": (chunked(b"1\r\n12\r\n0\r\n\r\n"), 400, False),
    "bare LF in chunks": (chunked(b"1\n1\n0\n\n"), 400, False),
    "chunks over the limit": (chunked(b"65\r\n" + b"1" * 101 + b"\r\n0\r\n\r\n"), 413, False),
    "other encoding": (head(b"transfer-encoding: gzip", body=b"1"), 400, False),
    "two encodings": (head(b"transfer-encoding: gzip, chunked", body=ONE_CHUNK + b"\r\n"), 400, False),
    "chunked twice": (chunked(ONE_CHUNK + b"\r\n", b"transfer-encoding: chunked"), 400, False),
    "not quite chunked": (head(b"transfer-encoding: xchunked", body=ONE_CHUNK + b"\r\n"), 400, False),
    # Header section
    "bare LF": (sized().replace(b"\r\n", b"\n"), 400, False),
    "LF in a header": (sized(b"x: a\ny: b"), 400, False),
    "CR in a header": (sized(b"x: a\ry: b"), 400, False),
    "NUL in a header": (sized(b"x: a\0b"), 400, False),
    "NUL in a name": (sized(b"x\0: a"), 400, False),
    "space before the colon": (sized(b"x : a"), 400, False),
    "folded": (sized(b"x: a", b" b"), 400, False),
    "no name": (sized(b": a"), 400, False),
    "no colon": (sized(b"x"), 400, False),
    "Latin-1": (sized(b"x: \xff"), 200, True),
    "long header": (sized(b"x: " + LONG), 431, False),
    "endless header": (head(b"x: " + LONG)[:-4], 431, False),
    "long headers": (sized(*[b"x: " + b"y" * 1000] * 70), 431, False),
    "many headers": (sized(*[b"x: y"] * 300), 431, False),
    "as many headers as allowed": (sized(*[b"x: y"] * 98), 200, True),
    "one header more": (sized(*[b"x: y"] * 99), 431, False),
    "endless name": (head(LONG)[:-4], 431, False),
    # First line
    "long target": (sized(start=b"POST /?" + b"a" * 17_000 + b" HTTP/1.1"), 414, False),
    "endless target": (b"POST /" + LONG, 414, False),
    "long target elsewhere": (head(start=b"GET /" + b"a" * 17_000 + b" HTTP/1.1"), 414, False),
    "absolute target": (sized(start=b"POST http://test/ HTTP/1.1"), 200, True),
    "absolute target elsewhere": (head(start=b"GET http://test/x HTTP/1.1"), 404, True),
    "absolute target without path": (head(start=b"GET http://test HTTP/1.1"), 400, False),
    "wrong port": (head(start=b"GET http://test:99999999/ HTTP/1.1"), 400, False),
    "Latin-1 in the target": (head(start=b"GET /\xff HTTP/1.1"), 400, False),
    "NUL in the target": (head(start=b"GET /\0 HTTP/1.1"), 400, False),
    "asterisk": (head(start=b"OPTIONS * HTTP/1.1"), 404, True),
    "CONNECT": (head(start=b"CONNECT test:80 HTTP/1.1"), 400, False),
    "unknown method": (sized(start=b"FOO / HTTP/1.1"), 400, False),
    "method in lower case": (sized(start=b"post / HTTP/1.1"), 400, False),
    "endless method": (LONG, 400, False),
    "HTTP/1.0": (sized(start=b"POST / HTTP/1.0"), 200, False),
    "chunks, HTTP/1.0": (chunked(ONE_CHUNK + b"\r\n", start=b"POST / HTTP/1.0"), 400, False),
    "chunks elsewhere, HTTP/1.0": (
        chunked(ONE_CHUNK + b"\r\n", b"connection: keep-alive", start=b"PUT /x HTTP/1.0"),
        400,
        False,
    ),
    "HTTP/1.2": (sized(start=b"POST / HTTP/1.2"), 400, False),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, False),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30), 400, False),
    "empty lines before": (b"\r\n\r\n" + sized(), 200, True),
    "endless empty lines": (b"\r\n" * 40_000, 431, False),
    "path as name": (head(start=b"GET test:80 HTTP/1.1"), 400, False),
    "name without slash": (head(start=b"GET test HTTP/1.1"), 400, False),
    "asterisk of GET": (head(start=b"GET * HTTP/1.1"), 400, False),
    "fragment": (head(start=b"GET /x#y HTTP/1.1"), 400, False),
    "fragment of a route": (sized(start=b"POST /#f HTTP/1.1"), 400, False),
    "fragment of a URL": (sized(start=b"POST http://test/#f HTTP/1.1"), 400, False),
    "escaped number sign": (head(start=b"GET /x%23y HTTP/1.1"), 404, True),
    "user in the target": (sized(start=b"POST http://me@test/ HTTP/1.1"), 400, False),
    "another scheme": (sized(start=b"POST ftp://test/ HTTP/1.1"), 400, False),
    "no host in the target": (sized(start=b"POST http:/// HTTP/1.1"), 400, False),
    "address in the target": (sized(start=b"POST http://[::1]:80/ HTTP/1.1"), 200, True),
    "control byte in the target": (head(start=b"GET /\x01 HTTP/1.1"), 400, False),
    "form feed in the target": (head(start=b"GET /\x0c HTTP/1.1"), 400, False),
    "DEL in the target": (head(start=b"GET /\x7f HTTP/1.1"), 400, False),
    # Host
    "no host": (b"GET /x HTTP/1.1\r\n\r\n", 400, False),
    "no host, HTTP/1.0": (b"GET /x HTTP/1.0\r\n\r\n", 404, False),
    "no host but a URL": (b"GET http://test/x HTTP/1.1\r\n\r\n", 400, False),
    "two hosts": (sized(b"host: test"), 400, False),
    "two hosts, HTTP/1.0": (sized(b"Host: test", start=b"POST / HTTP/1.0"), 400, False),
    **{
        f"host {host!r}": (b"GET /x HTTP/1.1\r\nhost: %b\r\n\r\n" % host, status, status == 404)
        for host, status in (
            *(
                (host, 404)
                for host in (b"a", b"a:80", b"a:", b"1.2.3.4:5", b"[::1]", b"[::1]:80", b"x_y.z", b"%41")
            ),
            *(
                (host, 400)
                for host in (b"", b" ", b"a b", b"a/b", b"me@a", b"::1", b"a:b", b"a,b:c", b"[::1", b"a#b")
            ),
            *((host, 400) for host in (b"a?b", b"http://a", b"a:80:80", b"\xff", b"%4")),
        )
    },
    # Others
    "offer of HTTP/2": (sized(b"connection: upgrade, http2-settings", b"upgrade: h2c"), 200, True),
    "offer with chunks": (chunked(ONE_CHUNK + b"\r\n", b"connection: upgrade", b"upgrade: h2c"), 200, True),
    "offer of HTTP/2 elsewhere": (
        head(b"connection: upgrade", b"upgrade: websocket", start=b"GET / HTTP/1.1"),
        404,
        True,
    ),
    "deadline that is none": (sized(b"x-request-timeout-ms: 1\xff"), 400, True),
}


@pytest.mark.parametrize("case", TABLE)
async def test_what_comes_is_answered(case: str) -> None:
    """One reply, however the input is split; the connection closes if the next request cannot be found."""
    sent, status, is_open = TABLE[case]
    for pieces in (1, 2, 50):
        connection = Connection(Stage().server)
        for at in range(pieces):
            connection.send(sent[at * len(sent) // pieces : (at + 1) * len(sent) // pieces])
        if case.startswith("endless"):
            connection.send(sent[-40_000:])
            connection.send(sent[-40_000:])
        await turns(20)

        [reply] = connection.replies()
        assert (reply.status, connection.closed) == (status, not is_open), f"in {pieces} pieces"
        assert is_open != ("connection" in reply.headers)
        if is_open:
            connection.send(sized())
            await turns(20)
            assert [reply.status for reply in connection.replies()] == [status, 200]


@pytest.mark.parametrize("before", [b"/hot", b"/plain"])
@pytest.mark.parametrize(
    "nonsense",
    [
        b"nonsense\r\n\r\n",
        chunked(b"zz\r\n", start=b"POST /hot HTTP/1.1"),
        chunked(b"zz\r\n", start=b"PUT /x HTTP/1.1"),
    ],
)
async def test_what_was_asked_before_is_answered_before(before: bytes, nonsense: bytes) -> None:
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"1") + hot(b"2", path=before) + nonsense)
    connection.send(b"more of it")
    assert not connection.received
    for _ in range(3):
        echo.answer()
        await turns()

    assert [reply.status for reply in connection.replies()] == [200, 200, 400]
    assert connection.closed


async def test_a_request_after_the_last_is_not_taken() -> None:
    """The client declared that there would be none."""
    stage = Stage()
    connection = Connection(stage.server)
    connection.send(sized(b"connection: close") + sized())
    connection.send(sized())
    await turns()

    assert [reply.status for reply in connection.replies()] == [200]
    assert len(stage.runner.jobs) == 1


async def test_trailers_are_no_headers() -> None:
    seen: list[object] = []

    async def app(scope: dict[str, Any], receive: object, send: object) -> None:
        await turns()
        seen.append([header for header in scope["headers"] if header[0] != b"x-request-id"])
        await plain(scope, receive, send)

    connection = Connection(Server({}, app=app))
    connection.send(chunked(ONE_CHUNK + b"authorization: me\r\n\r\n"))
    await turns(10)
    assert len(connection.replies()) == 1
    assert seen == [[(b"host", b"test"), (b"transfer-encoding", b"chunked")]]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"content-length: 101",), 413),
        ((b"content-length: 9", b"content-type: x/y"), 415),
        ((b"transfer-encoding: chunked", b"content-type: x/y"), 415),
    ],
)
async def test_a_refused_client_is_not_asked_for_its_body(lines: tuple[bytes, ...], status: int) -> None:
    """The client may send it or not, so the connection closes."""
    connection = Connection(Stage().server)
    connection.send(head(*lines, b"expect: 100-continue"))
    await turns()

    assert CONTINUE not in connection.received
    assert [reply.status for reply in connection.replies()] == [status]
    assert connection.closed


@pytest.mark.parametrize("body", [b"", b"65\r\n" + b"1" * 101 + b"\r\n0\r\n\r\n", b"zz\r\n"])
async def test_a_client_refused_before_its_chunks_end_learns_that_the_connection_closes(body: bytes) -> None:
    """What follows may be too large or malformed, and then there is no second response to say so."""
    connection = Connection(Stage().server)
    connection.send(chunked(body, b"content-type: x/y"))
    await turns()

    assert [(reply.status, reply.headers["connection"]) for reply in connection.replies()] == [(415, "close")]
    assert connection.closed


@pytest.mark.parametrize("start", [b"PUT / HTTP/1.1", b"POST /x HTTP/1.1"])
async def test_a_client_without_a_route_learns_it_too(start: bytes) -> None:
    connection = Connection(Stage().server)
    connection.send(chunked(b"1\r\n", start=start))
    await turns()

    assert [(reply.status, reply.headers["connection"]) for reply in connection.replies()] == [(404, "close")]
    assert connection.closed


async def test_http_1_0_knows_of_no_answer_before_the_answer() -> None:
    connection = Connection(Stage().server)
    whole = sized(b"expect: 100-continue", start=b"POST / HTTP/1.0")
    connection.send(whole[:-1])
    assert not connection.received
    connection.send(whole[-1:])
    await turns()
    assert [reply.status for reply in connection.replies()] == [200]


# The end of a connection


async def test_a_client_that_still_sends_can_read_its_answer() -> None:
    """A reset would discard the reply. Further input is discarded for a limited time."""
    stage = Stage()
    Connection(stage.server).send(sized())
    await turns()
    connection = Connection(stage.server)
    connection.send(head(b"content-length: 1000"))
    assert [reply.status for reply in connection.replies()] == [413]
    assert connection.closed
    assert not connection.is_closing()
    connection.send(b"x" * 1000)
    connection.send(sized())  # the same head has come before
    assert connection.reading
    connection.end()
    await turns()

    assert connection.is_closing()
    assert (len(connection.replies()), len(stage.runner.jobs)) == (1, 1)


@pytest.mark.parametrize("path", [b"/hot", b"/plain"])
async def test_a_client_that_ends_its_sending_gets_its_answers(path: bytes) -> None:
    """All of them; then the connection closes."""
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"1") + hot(b"2", path=path))
    connection.end()
    assert len(echo.open_requests) == 1
    for _ in range(2):
        echo.answer()
        await turns()

    without = connection.received.replace(CONTINUE, b"")
    assert without.count(b"HTTP/1.1 200 OK") == 2
    assert without.count(b"connection: close") == 1
    assert connection.closed
    assert echo.left == 0


async def test_a_client_that_has_ended_is_asked_whether_it_is_there() -> None:
    """Interim replies are sent repeatedly; the system of a client that has gone answers with a reset."""
    stage = Stage()
    stage.runner.gate.clear()
    busy, connection = Connection(stage.server), Connection(stage.server)
    busy.send(sized())
    await turns()
    connection.send(sized())
    connection.end()
    assert connection.received == CONTINUE
    while connection.received != CONTINUE * 3:
        await turns(1)
    connection.leave()
    assert stage.counted(499) == 1
    stage.runner.gate.set()
    await turns()
    assert len(stage.runner.jobs) == 1


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"", []),
        (sized(), [200]),
        (b"POST / HT", [400]),
        (sized()[:-1], [400]),
        (sized() + sized()[:-1], [200, 400]),
        (head(start=b"GET /x HTTP/1.1") + head(b"content-length: 1", start=b"PUT /x HTTP/1.1"), [404, 400]),
    ],
)
async def test_a_connection_that_ends_is_closed(sent: bytes, statuses: list[int]) -> None:
    """Half a request gets 400."""
    connection = Connection(Stage().server)
    connection.send(sent)
    connection.end()
    await turns(20)

    connection.received = connection.received.replace(CONTINUE, b"")
    assert [reply.status for reply in connection.replies()] == statuses
    assert connection.is_closing()


# Limits of all connections together


async def test_large_bodies_are_bounded_together() -> None:
    """Beyond the limit, large ones are refused, at the head if it declares the length."""
    stage = Stage()
    stage.route.max_body_bytes = 300_000
    server = stage.server
    server.listener.pool.max_bytes = 250_000
    first, second, third, small = (Connection(server) for _ in range(4))
    first.send(head(b"content-length: 200000", body=b"1" * 100_000))
    second.send(head(b"content-length: 150001", b"expect: 100-continue"))
    [early] = second.replies()
    assert (early.status, early.headers["retry-after"], reason(early)) == (503, "1", "no_room")
    assert second.closed
    third.send(chunked(b"%x\r\n%b\r\n" % (60_000, b"1" * 60_000) * 2))
    assert not third.received
    third.send(b"%x\r\n%b\r\n" % (60_000, b"1" * 60_000))
    assert [(reply.status, reason(reply)) for reply in third.replies()] == [(503, "no_room")]
    assert stage.metrics.api("echo").sheds == {"no_room": 2}
    small.send(sized())
    first.send(b"1" * 100_000)
    await turns()

    assert [reply.status for reply in small.replies()] == [200]
    assert [reply.status for reply in first.replies()] == [200]
    assert server.listener.pool.used_bytes == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["head", "piece", "rest", "end", "leave", "nonsense"])),
        max_size=30,
    )
)
async def test_no_memory_is_counted_for_ever(steps: list[tuple[int, str]]) -> None:
    stage = Stage()
    stage.server.listener.pool.max_bytes = 150
    connections = [Connection(stage.server) for _ in range(4)]
    for number, step in steps:
        connection = connections[number]
        if connection.closed:
            connections[number] = connection = Connection(stage.server)
        match step:
            case "leave":
                connection.leave()
            case "end":
                connection.end()
            case _:
                sent = {"head": sized()[:-1], "piece": chunked(b"50\r\n" + b"1" * 60), "rest": b"1" * 32}
                connection.send(sent.get(step, b"\r\n\r\n"))
        await turns(1)
    for connection in connections:
        if not connection.is_closing():
            connection.leave()
    await turns()

    assert stage.server.listener.pool.used_bytes == 0


async def test_connections_are_bounded() -> None:
    """Another one is refused until one has closed."""
    stage = Stage()
    server = Server({b"/": stage.route}, limits=ClientLimits(max_connections=2))
    first, second, third = (Connection(server) for _ in range(3))
    [reply] = third.replies()
    assert (reply.status, reason(reply)) == (503, "too_many_connections")
    assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
    assert (third.closed, third.is_closing()) == (True, False)
    third.send(sized())  # if it stayed unread, the system would reset the connection, and discard the reply
    third.end()
    assert (third.replies(), third.is_closing()) == ([reply], True)
    first.leave()
    fourth = Connection(server)
    for connection in (second, fourth):
        connection.send(sized())
        await turns()
        assert [reply.status for reply in connection.replies()] == [200]


async def test_refused_connections_that_stay_take_no_places() -> None:
    """They close when their clients have read the refusal, or after a while."""
    server = Server({b"/": Stage().route}, limits=ClientLimits(max_connections=2))
    first, *_ = (Connection(server) for _ in range(2))
    refused = [Connection(server) for _ in range(MOST_REFUSED)]
    first.leave()
    third = Connection(server)
    third.send(sized())
    await turns()
    assert [reply.status for reply in third.replies()] == [200]
    for connection in refused:
        connection.leave()
    assert [reply.status for reply in Connection(server).replies()] == [503]


@pytest.mark.parametrize("method", [b"POST / HTTP/1.1", b"GET /x HTTP/1.1"])
@pytest.mark.parametrize(
    ("host", "accepted"),
    [
        (b"ours.example", True),
        (b"OURS.example:80", True),
        (b"127.0.0.1:80", True),
        (b"[::1]", True),
        (b"localhost", True),
        (b"evil.example", False),
        (b"ours.example.evil.example", False),
        (b"127.0.0.1.evil.example", False),
    ],
)
async def test_only_allowed_hosts_are_accepted(method: bytes, host: bytes, accepted: bool) -> None:
    """Each time: a head that was accepted is known, and another is not."""
    server = Stage().server
    server.listener.limits = ClientLimits(allowed_hosts=frozenset(["ours.example"]))
    for _ in range(2):
        connection = Connection(server)
        connection.send(sized(start=method).replace(b"host: test", b"host: " + host))
        await turns(20)
        assert ([reply.status for reply in connection.replies()] == [421]) != accepted


async def test_a_connection_from_before_a_reload_makes_no_head_known() -> None:
    """A new connection would accept it without a look at the host."""
    server = Stage().server
    before = Connection(server)
    server.listener.limits = ClientLimits(allowed_hosts=frozenset(["ours.example"]))
    after = Connection(server)
    for connection, status in ((before, 200), (after, 421)):
        connection.send(sized())
        await turns()
        assert [reply.status for reply in connection.replies()] == [status]


def test_refusals_have_a_limit_too() -> None:
    """Each of them uses a file until its client has read it."""
    connections = OpenConnections()
    assert [connections.opened(10) for _ in range(40)].index("flooded") == 18


def test_the_log_says_so_once_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    connections = OpenConnections()
    with caplog.at_level(logging.WARNING, logger="uncork.gateway"):
        for _ in range(9):
            connections.opened(3)
    [record] = caplog.records
    assert record.getMessage().startswith("refusing client connections: 3 are open")
