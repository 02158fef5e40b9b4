"""The fast path and the ASGI path, on one connection and on many."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Sequence
from itertools import permutations
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.client import Connection, Server, request
from tests.gateway.running import turns
from uncork_gateway import interfaces
from uncork_gateway.connection import route_table
from uncork_gateway.connection.asgi_request import AsgiRequest
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.errors import GatewayError
from uncork_gateway.headers import Header, new_request_id

CLOSE = (b"connection", b"close")


class Echo:
    """A handler that replies with the body, at once or when the test says so."""

    def __init__(self, *, at_once: bool = True, status: int = 200) -> None:
        self.at_once = at_once
        self.status = status
        self.read: list[Sequence[Header]] = []
        self.open_requests: list[EchoRequest] = []
        self.left = 0
        self.whole = 0

    def read_head(self, headers: Sequence[Header], target: bytes) -> bytes:
        """Record the headers, and return the value of ``x``."""
        self.read.append(list(headers))
        return next((value for name, value in headers if name.lower() == b"x"), b"-")

    def open(self, connection: interfaces.Connection, head: bytes, *, keep_alive: bool) -> EchoRequest:
        return EchoRequest(self, connection, head, keep_alive=keep_alive)

    def answer(self) -> None:
        """Answer the open requests."""
        waiting, self.open_requests = self.open_requests, []
        for one in waiting:
            one.answer()


class EchoRequest:
    """A request to :class:`Echo`."""

    def __init__(
        self, echo: Echo, connection: interfaces.Connection, head: bytes, *, keep_alive: bool
    ) -> None:
        self.keep_alive = keep_alive
        self.request_id = self.cors = b""
        self._has_left = False
        self._echo = echo
        self._connection = connection
        self._head = head
        self._body = b""
        self._missing = 2
        self._error: GatewayError | None = None

    def start(self) -> None:
        """Reply if the body is complete."""
        if self._head == b"expects":
            self._connection.send_continue()
        self._go_on()

    def body_received(self, piece: bytes) -> None:
        self._body += piece

    def body_complete(self) -> None:
        self._go_on()

    def execute(self, body: bytes) -> None:
        self._echo.whole += 1
        self._body = body
        self._missing = 1
        self._go_on()

    def reject(self, error: GatewayError) -> None:
        self.keep_alive = False
        self._error = error
        self._missing -= 1
        if not self._missing:
            self.answer()

    def disconnect(self) -> None:
        """Count the request as cancelled."""
        assert not self._has_left
        self._has_left = True
        self._echo.left += 1

    def answer(self) -> None:
        """Reply with header and body."""
        status = self._echo.status if self._error is None else self._error.status
        self._connection.reply(self, status, b"x: %b\r\n" % self._head, self._body)

    def _go_on(self) -> None:
        self._missing -= 1
        if not self._missing:
            if self._echo.at_once:
                self.answer()
            else:
                self._echo.open_requests.append(self)


async def plain(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The application on the ASGI path: it replies with method, path and body."""
    body = f"{scope['method']} {scope['path']} ".encode()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-length", b"%d" % len(body)), (b"x", b"plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serving(echo: Echo) -> Server:
    """A server with a handler for ``/hot``."""
    return Server({b"/hot": echo}, app=plain)


def hot(body: bytes, *headers: Header, path: bytes = b"/hot") -> bytes:
    """A request on the fast path."""
    return request(body, path=path, headers=headers)


def bodies(connection: Connection) -> list[bytes]:
    return [reply.body for reply in connection.replies()]


@pytest.mark.parametrize(
    "target", [b"/hot", b"/hot?a=b", b"/%68ot", b"http://test/hot", b"http://test/hot?x", b"/hot?"]
)
async def test_a_request_has_the_handler_of_its_path(target: bytes) -> None:
    connection = Connection(serving(Echo()))
    connection.send(hot(b"body", (b"X", b"1"), path=target))

    [reply] = connection.replies()
    assert (reply.status, reply.headers["x"], reply.body) == (200, "1", b"body")


@pytest.mark.parametrize("line", [b"POST /other", b"GET /hot", b"PUT /hot", b"POST /hot/", b"OPTIONS *"])
async def test_all_else_takes_the_asgi_path(line: bytes) -> None:
    connection = Connection(serving(Echo()))
    connection.send(line + b" HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi")
    await turns()

    method, path = line.decode().split()
    assert bodies(connection) == [f"{method} {path} hi".encode()]


async def test_a_head_that_comes_again_is_not_read_again() -> None:
    """This holds on any connection, for any body of the same length; a head with any difference is parsed."""
    echo = Echo()
    server = serving(echo)
    one, two = Connection(server), Connection(server)
    for connection, body in ((one, b"aa"), (one, b"bb"), (two, b"cc")):
        connection.send(hot(body, (b"x", b"1")))
        await turns()
    assert (len(echo.read), echo.whole) == (1, 2)
    two.send(hot(b"dd", (b"x", b"2")))
    two.send(hot(b"eee", (b"x", b"1")))

    assert bodies(one) == [b"aa", b"bb"]
    assert [(reply.headers["x"], reply.body) for reply in two.replies()] == [
        ("1", b"cc"),
        ("2", b"dd"),
        ("1", b"eee"),
    ]


@pytest.mark.parametrize("name", [b"X-Request-Id", b"x-request-id", b"traceparent", b"X-B3-TraceId"])
async def test_a_head_with_another_id_is_not_parsed_again(name: bytes) -> None:
    """Such heads are known once, and do not push out others."""
    echo = Echo()
    server = serving(echo)
    connection = Connection(server)
    for number in range(9):
        connection.send(hot(b"a", (b"x", b"1"), (name, b"%d" % number)))
    await turns()

    # Once for the request, and once to see whether the handler reads the id.
    assert (len(echo.read), len(server.routes.known)) == (2, 1)
    assert bodies(connection) == [b"a"] * 9


class Telling(Echo):
    """Replies with all headers of the request."""

    def read_head(self, headers: Sequence[Header], target: bytes) -> bytes:
        """Return all headers, sorted by name; repeated headers keep their order."""
        return repr(sorted(((name.lower(), value) for name, value in headers), key=itemgetter(0))).encode()


# Ids as proxies add them, and what must not pass for one.
LINES = [
    *(
        b"X-Request-Id: a",
        b"X-Request-Id: b",
        b"x-request-id:c",
        b"X-Request-Id:  two spaces",
        b"traceparent: 00-1",
    ),
    *(
        b"X-Request-Id: a\nx: 1",
        b"X-Request-Id: a\x00",
        b"X-Request-Id: a\rb",
        b"X-Request-Id: ",
        b"X-Request-Id : a",
    ),
    *(
        b"X-Request-Id: a ",
        b"X-Request-Id: a\r\n folded",
        b" folded",
        b"X-Request-Id: \xff",
        b"x: 1",
        b"x: X-Request-Id: a",
    ),
    *(
        b"X-Request-Id: " + b"a" * 300,
        b"transfer-encoding: chunked",
        b"content-length: 1",
        b"X-Request-Idx: a",
        b"x-request-id: two words",
    ),
]


KNOWN = [
    *([], [b"x: 1"], [b"X-Request-Id: a"], [b"x: 1", b"X-Request-Id: a"], [b"traceparent: 00-1"]),
    [b"X-Request-Id: a", b"x-request-id: two words"],
]


async def test_what_is_known_of_other_heads_changes_no_answer() -> None:
    """Each request gets what it gets from a server that knows no head."""
    server = serving(Telling())
    for lines in KNOWN:
        for _ in range(2):
            await reply_of(server, lines)
    for sent in [*permutations(LINES, 1), *permutations(LINES, 2)]:
        assert await reply_of(server, sent) == await reply_of(serving(Telling()), sent)


MADE = re.compile(rb"[0-9a-f]{16}-[0-9a-f]{8}")
"""The id of a request that came without one."""


async def reply_of(server: Server, lines: Sequence[bytes]) -> tuple[bytes, bool]:
    """Send a request with these header lines on a new connection; return the reply, and whether it closed."""
    connection = Connection(server)
    head = [b"POST /hot HTTP/1.1", b"host: test", *lines, b"content-length: 4"]
    connection.send(b"\r\n".join([*head, b"", b"1\r\n2"]))
    await turns()
    return MADE.sub(b"made", connection.received), connection.closed


def ids(connection: Connection) -> list[str]:
    return [reply.headers["x-request-id"] for reply in connection.replies()]


@pytest.mark.parametrize("path", [b"/hot", b"/other"])
@pytest.mark.parametrize("given", [b"one", b"~" * 128, b"two words", b'a "b"; c'])
async def test_the_id_of_a_request_comes_back(path: bytes, given: bytes) -> None:
    """On both paths, whether the head is parsed or known."""
    connection = Connection(serving(Echo()))
    for name in (b"X-Request-Id", b"x-request-id", b"X-Request-Id"):
        connection.send(hot(b"hi", (name, given), path=path))
        await turns()

    assert ids(connection) == [given.decode()] * 3


@pytest.mark.parametrize("path", [b"/hot", b"/other"])
@pytest.mark.parametrize(
    "headers", [(), [(b"X-Request-Id", b"~" * 129)], [(b"X-Request-Id", b"\xff")], [(b"X-Request-Id", b"")]]
)
async def test_any_other_request_gets_an_id(path: bytes, headers: Sequence[Header]) -> None:
    """Each another one, also if its head is known."""
    connection = Connection(serving(Echo()))
    for _ in range(3):
        connection.send(hot(b"hi", *headers, path=path))
        await turns()

    made = ids(connection)
    assert len(set(made)) == 3
    assert all(MADE.fullmatch(each.encode()) for each in made)


def test_ids_are_in_the_order_of_the_requests() -> None:
    """They are made 256 at a time."""
    made = [new_request_id() for _ in range(600)]

    assert made == sorted(set(made))
    assert all(map(MADE.fullmatch, made))


async def test_each_of_several_requests_has_its_own_id() -> None:
    """Those of one turn, and those whose bodies come in pieces."""
    echo = Echo(at_once=False)
    server = serving(echo)
    numbers = range(6)
    connections = [Connection(server) for _ in numbers]
    for round_ in range(2):
        for number, connection in enumerate(connections):
            sent = hot(b"12345678", (b"X-Request-Id", b"%d.%d" % (round_, number)))
            cut = len(sent) - 4 * (number % 2)
            connection.send(sent[:cut])
            if number % 2:
                connection.send(sent[cut:])
        await turns()
        echo.answer()

    assert [ids(connection) for connection in connections] == [[f"0.{at}", f"1.{at}"] for at in numbers]


async def test_an_error_before_the_request_is_read_has_an_id() -> None:
    connection = Connection(serving(Echo()))
    connection.send(b"nonsense\r\n\r\n")
    await turns()

    [reply] = connection.replies()
    assert reply.status == 400
    assert json.loads(reply.body)["request_id"] == reply.headers["x-request-id"]


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /predict HTTP/1.1\r\nX-Request-Id: mine\r\nHost: x\r\nY: \x01\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n",
        b"POST http://x HTTP/1.1\r\nX-Request-Id: mine\r\nHost: x\r\n\r\n",
    ],
    ids=["a character", "no host", "no path"],
)
async def test_an_error_in_the_head_has_the_id_of_the_head(request_: bytes) -> None:
    connection = Connection(serving(Echo()))
    connection.send(hot(b"12345678", (b"X-Request-Id", b"before")))
    connection.send(request_)
    await turns()

    reply = connection.replies()[-1]
    assert (reply.status, reply.headers["x-request-id"]) == (400, "mine")
    assert json.loads(reply.body)["request_id"] == "mine"


@pytest.mark.parametrize("input_", [b"nonsense\r\n\r\n", b"\r\n" * 40_000])
async def test_an_error_without_a_head_has_not_the_id_of_the_request_before(input_: bytes) -> None:
    connection = Connection(serving(Echo()))
    connection.send(hot(b"12345678", (b"X-Request-Id", b"before")))
    connection.send(input_)
    await turns()

    first, second = connection.replies()
    assert (first.status, first.headers["x-request-id"]) == (200, "before")
    assert second.status >= 400
    assert MADE.fullmatch(second.headers["x-request-id"].encode())


@pytest.mark.parametrize("cut", [0, 1, 4])
async def test_a_known_head_is_not_parsed_again_if_the_body_comes_in_pieces(cut: int) -> None:
    """Also if the next request comes with the end of the body."""
    echo = Echo()
    server = serving(echo)
    connection = Connection(server)
    for body in (b"12345678", b"abcdefgh", b"ABCDEFGH"):
        whole = hot(body, (b"x", b"1"))
        head = len(whole) - len(body)
        connection.send(whole[: head + cut])
        connection.send(whole[head + cut : -1])
        connection.send(whole[-1:] + hot(b"next", (b"x", b"2")))

    assert bodies(connection) == [b"12345678", b"next", b"abcdefgh", b"next", b"ABCDEFGH", b"next"]
    assert (len(echo.read), server.routes.known.keys() >= {whole[:head]}) == (3, True)


async def test_a_client_that_leaves_in_a_body_with_a_known_head_cancels_its_request() -> None:
    echo = Echo()
    server = serving(echo)
    Connection(server).send(hot(b"12345678"))
    connection = Connection(server)
    connection.send(hot(b"12345678")[:-4])
    connection.leave()
    await turns()

    assert (len(echo.read), echo.left) == (1, 1)


@pytest.mark.parametrize("before", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
async def test_only_what_the_parser_took_for_a_head_is_known(before: bytes, line_end: bytes) -> None:
    """Not empty lines before a request, nor a body with an empty line in it."""
    echo = Echo()
    server = serving(echo)
    body = b"a\r\n\r\nbcdef"
    head = hot(body)[: -len(body)]
    whole = before + head.replace(b"\r\n", line_end) + body
    for _ in range(3):
        connection = Connection(server)
        connection.send(whole[:-3])
        connection.send(whole[-3:])

    assert set(server.routes.known) <= {head}


async def test_a_new_handler_reads_all_heads_anew() -> None:
    first, second = Echo(), Echo()
    server = serving(first)
    connection = Connection(server)
    connection.send(hot(b"a"))
    connection.send(hot(b"b"))
    server.routes.replace({b"/hot": second})
    connection.send(hot(b"c"))
    server.routes.replace({})
    connection.send(hot(b"d"))
    await turns()

    assert bodies(connection) == [b"a", b"b", b"c", b"POST /hot d"]
    assert (len(first.read), len(second.read)) == (1, 1)


async def test_heads_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "_MOST_KNOWN", 10)

    echo = Echo()
    server = serving(echo)
    connection = Connection(server)
    most = 0
    for number in range(50):
        connection.send(hot(b"a", (b"x", b"%d" % number)))
        most = max(most, len(server.routes.known))
    assert most == 10
    for _ in range(2):
        connection.send(hot(b"a", (b"x", b"1" * 5000)))

    assert len(echo.read) == 52
    assert bodies(connection) == [b"a"] * 52


async def test_part_of_a_head_is_not_taken_for_a_head() -> None:
    """The second half of a head is not known when it comes first on another connection."""
    server = serving(Echo())
    whole = hot(b"body")
    connection = Connection(server)
    connection.send(whole[:20])
    connection.send(whole[20:])
    assert bodies(connection) == [b"body"]

    other = Connection(server)
    other.send(whole[20:])
    assert [reply.status for reply in other.replies()] == [400]
    assert other.closed


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["hot", "chunked", "plain", "get"]),
        st.integers(0, 3).map(lambda n: b"\r\n\r\nx" * n),
        st.sampled_from([b"1", b"2"]),
    ),
    min_size=1,
    max_size=6,
)


def wire(kind: str, body: bytes, mark: bytes) -> bytes:
    match kind:
        case "hot":
            return hot(body, (b"x", mark))
        case "plain":
            return hot(body, (b"x", mark), path=b"/plain")
        case "get":
            return b"GET /plain HTTP/1.1\r\nhost: test\r\nx: %b\r\n\r\n" % mark
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    return b"POST /hot HTTP/1.1\r\nhost: test\r\nx: %b\r\ntransfer-encoding: chunked\r\n\r\n%b" % (
        mark,
        chunks,
    )


def expected(kind: str, body: bytes, mark: bytes) -> tuple[str, bytes]:
    """Return the expected header and body of the reply."""
    if kind in ("hot", "chunked"):
        return mark.decode(), body
    return "plain", b"GET /plain " if kind == "get" else b"POST /plain " + body


@given(REQUESTS, st.data())
async def test_replies_come_in_order_however_requests_are_cut(
    requests: list[tuple[str, bytes, bytes]], data: st.DataObject
) -> None:
    """This holds for any stream of requests, pipelined or not, split anywhere, answered at once or later."""
    stream = b"".join(wire(*one) for one in requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    echo = Echo(at_once=data.draw(st.booleans()))
    pause = data.draw(st.integers(0, 3))

    connection = Connection(serving(echo))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        connection.send(stream[start:end])
        await turns(pause)
        if pause:
            echo.answer()
    for _ in range(4 * len(requests)):
        await turns(3)
        echo.answer()

    replies = connection.replies()
    assert [(reply.headers["x"], reply.body) for reply in replies] == [expected(*one) for one in requests]
    assert connection.reading
    assert not connection.closed


@pytest.mark.parametrize("first", ["hot", "plain"])
@pytest.mark.parametrize("second", ["hot", "plain"])
async def test_a_client_that_pipelines_is_not_read_faster_than_answered(first: str, second: str) -> None:
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(wire(first, b"1", b"-") + wire(second, b"2", b"-"))
    assert not connection.reading
    for _ in range(4):
        await turns()
        echo.answer()

    assert len(connection.replies()) == 2
    assert connection.reading


class Faulty(Echo):
    """A handler whose requests cannot be started."""

    def open(self, connection: interfaces.Connection, head: bytes, *, keep_alive: bool) -> EchoRequest:
        """Create a request that fails when it starts."""
        return FaultyRequest(self, connection, head, keep_alive=keep_alive)


class FaultyRequest(EchoRequest):
    """A request to :class:`Faulty`."""

    def start(self) -> None:
        raise ZeroDivisionError


async def test_a_pipelined_request_that_cannot_be_started_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    echo, faulty = Echo(at_once=False), Faulty()
    server = Server({b"/hot": echo, b"/faulty": faulty})
    connection = Connection(server)
    connection.send(hot(b"1") + hot(b"2", path=b"/faulty") + hot(b"3"))
    echo.answer()

    assert (bodies(connection), connection.closed) == ([b"1"], True)
    connection.leave()
    assert (echo.left, faulty.left) == (1, 1)
    assert "ZeroDivisionError" in caplog.text


async def test_a_client_that_has_reset_its_connection_is_let_go() -> None:
    """The system knows of the reset before the loop does."""

    class Reset(Connection):
        def write_eof(self) -> None:
            raise OSError(107, "Transport endpoint is not connected")

    connection = Reset(serving(Echo()))
    connection.send(b"no request\r\n\r\n")

    assert [reply.status for reply in connection.replies()] == [400]
    assert connection.aborted


async def test_thousands_of_pipelined_requests_are_answered() -> None:
    """Starting each within the one before would exceed the recursion limit."""
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"first") + hot(b"more") * 3000)
    echo.at_once = True
    while echo.open_requests or not connection.reading:
        echo.answer()
        await turns(1)

    assert bodies(connection) == [b"first"] + [b"more"] * 3000


async def test_a_client_that_does_not_read_its_answers_waits_for_the_next() -> None:
    """Replies would pile up otherwise."""
    connection = Connection(serving(Echo()))
    connection.protocol.pause_writing()
    connection.send(hot(b"1") + hot(b"2") + hot(b"3"))
    assert bodies(connection) == []
    connection.protocol.resume_writing()

    assert bodies(connection) == [b"1", b"2", b"3"]
    assert connection.reading


@pytest.mark.parametrize(
    ("version", "headers", "stays"),
    [
        (b"1.1", [], True),
        (b"1.1", [CLOSE], False),
        (b"1.0", [], False),
        (b"1.0", [(b"connection", b"keep-alive")], True),
    ],
)
async def test_the_connection_is_kept_if_the_client_wants(
    version: bytes, headers: list[Header], stays: bool
) -> None:
    """HTTP/1.1 clients do unless they say otherwise, others if they say so. The reply says what follows."""
    for _ in range(2):  # the second time the head could be known
        connection = Connection(serving(Echo()))
        connection.send(hot(b"body", *headers).replace(b"HTTP/1.1", b"HTTP/" + version))

        [reply] = connection.replies()
        kept = "keep-alive" if version == b"1.0" else None
        assert reply.headers.get("connection") == (kept if stays else "close")
        assert connection.closed != stays


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_that_allows_no_body_has_none(status: int) -> None:
    """A client would take the body for the next reply."""
    connection = Connection(serving(Echo(status=status)))
    connection.send(hot(b"one") + hot(b"two"))

    assert [(reply.status, reply.body) for reply in connection.replies()] == [(status, b"")] * 2
    assert b"one" not in connection.received


async def test_a_client_may_ask_before_it_sends() -> None:
    """``Expect: 100-continue``: the interim reply comes first."""
    connection = Connection(serving(Echo()))
    head, body = hot(b"body", (b"x", b"expects")).split(b"\r\n\r\n")
    connection.send(head + b"\r\n\r\n")
    assert connection.received == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(body)
    assert connection.received.endswith(b"\r\n\r\nbody")


async def test_clients_that_leave_are_told_of() -> None:
    """Every request without a reply is cancelled once, whether it has started or not."""
    echo = Echo()
    connection = Connection(serving(echo))
    connection.send(hot(b"0"))
    echo.at_once = False
    connection.send(hot(b"1") + hot(b"2"))
    connection.leave()
    assert echo.left == 2
    [first] = echo.open_requests
    first.answer()

    assert bodies(connection) == [b"0"]


async def test_shutting_down_answers_what_was_asked() -> None:
    """Then the connection closes; an idle one closes at once."""
    echo = Echo(at_once=False)
    server = serving(echo)
    idle, busy = Connection(server), Connection(server)
    busy.send(hot(b"1"))
    for connection in (idle, busy):
        connection.protocol.shutdown()
    assert (idle.closed, busy.closed) == (True, False)
    echo.answer()

    [reply] = busy.replies()
    assert (reply.body, reply.headers["connection"], busy.closed) == (b"1", "close", True)


async def test_few_of_many_pipelined_requests_are_read_before_their_turn() -> None:
    """A request of 30 bytes takes some kilobytes until it is answered."""
    echo = Echo(at_once=False)
    connection = Connection(serving(echo))
    connection.send(hot(b"more") * 3000)
    connection.send(hot(b"last"))
    assert (len(echo.open_requests) < 40, connection.reading) == (True, False)
    while echo.open_requests or not connection.reading:
        echo.answer()
        await turns(1)
    assert bodies(connection) == [b"more"] * 3000 + [b"last"]
    assert connection.reading


async def test_requests_that_are_answered_at_once_are_read_in_several_turns() -> None:
    connection = Connection(serving(Echo()))
    connection.send(hot(b"more") * 3000)
    at_once = len(bodies(connection))
    assert (at_once < 130, connection.reading) == (True, False)
    await turns(1)
    assert at_once < len(bodies(connection)) <= 2 * at_once + 20
    while not connection.reading:
        await turns(1)
    assert bodies(connection) == [b"more"] * 3000


def pieces(size: int, count: int) -> bytes:
    return (b"%x\r\n%b\r\n" % (size, b" " * size)) * count


async def received(connection: Connection) -> int:
    """Wait until all input is parsed; return the largest number of bytes of bodies that a turn added."""
    most = 0
    while not connection.reading:
        before = connection.protocol.body_bytes
        await turns(1)
        most = max(most, connection.protocol.body_bytes - before)
    return most


@pytest.mark.parametrize("path", [b"/hot", b"/cold"])
async def test_a_body_in_tiny_chunks_is_read_in_several_turns(path: bytes) -> None:
    """Other connections get their turns, and nothing more is read from this one meanwhile."""
    server = serving(Echo())
    connection, other = Connection(server), Connection(server)
    head = b"POST %b HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n" % path
    connection.send(head)
    await turns(2)
    connection.send(pieces(2, 20_000))
    assert (2 * 2000 < connection.protocol.body_bytes <= 2 * 2700, connection.reading) == (True, False)
    connection.send(pieces(2, 20_000) + b"0\r\n\r\n")
    other.send(hot(b"other"))
    assert bodies(other) == [b"other"]
    assert 2 * 2000 < await received(connection) <= 2 * 2700
    await turns(3)
    [reply] = connection.replies()
    assert reply.body.removeprefix(b"POST /cold ") == b" " * 80_000


async def test_many_bodies_in_tiny_chunks_share_a_turn() -> None:
    """Each connection is read a little at once, and in its share of later turns."""
    server = serving(Echo())
    connections = [Connection(server) for _ in range(50)]
    for connection in connections:
        connection.send(b"POST /hot HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
    for connection in connections:
        connection.send(pieces(2, 5000))

    def total() -> int:
        return sum(connection.protocol.body_bytes for connection in connections)

    assert 2 * 50 * 100 < total() < 2 * (2700 + 50 * 200)
    most = 0
    while not all(connection.reading for connection in connections):
        before = total()
        await turns(1)
        most = max(most, total() - before)
    assert most <= 2 * 3500
    assert total() == 2 * 50 * 5000


async def test_a_body_in_one_chunk_after_the_work_of_a_turn() -> None:
    """Large pieces of bodies cost no more than their bytes, and do not wait."""
    echo = Echo()
    connection, other = Connection(serving(echo)), Connection(serving(echo))
    other.send(b"POST /hot HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n" + pieces(2, 9000))
    connection.send(hot(b"x" * 100_000))
    assert bodies(connection) == [b"x" * 100_000]


@pytest.mark.parametrize("how", ["leave", "end"])
async def test_a_client_that_stops_while_its_chunks_wait(how: str) -> None:
    echo = Echo()
    connection = Connection(serving(echo))
    connection.send(b"POST /hot HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
    connection.send(pieces(2, 5000) + b"0\r\n\r\n")
    assert not connection.reading
    getattr(connection, how)()
    await turns(3)
    assert echo.left == (how == "leave")
    assert bodies(connection) == ([b" " * 10_000] if how == "end" else [])


class TlsConnection(Connection):
    """A connection that the server takes for one over TLS."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return True if name == "sslcontext" else default


@pytest.mark.parametrize("kind", [TlsConnection, Connection])
async def test_what_waits_is_not_parsed_when_the_client_counts_as_gone(kind: type[Connection]) -> None:
    """Over TLS, and in the middle of a response, nothing would be answered."""
    echo = Echo(at_once=False)
    connection = kind(serving(echo))
    connection.send(hot(b"1") * 200)
    begun = connection.protocol.begun
    if kind is Connection:
        connection.protocol.begin_reply(echo.open_requests[0], 200, b"")
    assert not connection.protocol.eof_received()
    await turns(5)

    assert connection.protocol.begun == begun < 200


async def test_an_application_that_reads_does_not_let_more_input_in_than_is_parsed() -> None:
    connection = Connection(serving(Echo()))
    connection.send(b"POST /cold HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
    await turns(2)
    connection.send(pieces(2, 20_000))
    connection.protocol.flow.resume_reading()  # As the application does whenever it receives.
    assert not connection.reading
    assert await received(connection)
    assert connection.protocol.body_bytes == 40_000


async def test_a_server_that_retires_announces_the_close_of_each_connection() -> None:
    """A load balancer would otherwise send requests on it until the server is gone."""
    server = serving(Echo())
    before = Connection(server)
    before.send(hot(b"1"))
    server.listener.retiring = True
    before.send(hot(b"2"))
    after = Connection(server)
    after.send(hot(b"3") + hot(b"4"))
    await turns(5)
    assert bodies(before) == [b"1", b"2"]
    assert ["connection" in reply.headers for reply in before.replies()] == [False, True]
    assert [reply.headers.get("connection") for reply in after.replies()][-1] == "close"
    assert before.closed
    assert after.closed


async def test_what_was_pipelined_is_answered_before_a_server_that_ends_closes() -> None:
    echo = Echo(at_once=False)
    server = Server({b"/": echo})
    connection = Connection(server)
    connection.send(request(b"1") + request(b"2"))
    server.listener.retiring = True
    closed = []
    for _ in range(2):
        echo.answer()
        closed.append(connection.closed)

    assert closed == [False, True]
    assert [reply.headers.get("connection") for reply in connection.replies()] == [None, "close"]


@pytest.mark.parametrize("cut", [0, 10, -2])
@pytest.mark.parametrize("path", [b"/hot", b"/cold"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_an_answered_request_is_not_kept_while_its_client_is_idle(
    path: bytes, at_once: bool, cut: int
) -> None:
    """With its body and its result, it takes memory that no limit counts."""
    echo = Echo(at_once=at_once)
    connection = Connection(serving(echo))
    sent = hot(b"body", path=path)
    for _ in range(2):  # the second head may be known
        for piece in filter(None, (sent[:cut], sent[cut:])):
            connection.send(piece)
        await turns()
        echo.answer()
        await turns()

        requests = [one for one in gc.get_objects() if isinstance(one, EchoRequest | AsgiRequest)]
        assert [one for one in requests if one._connection is connection.protocol] == []
    assert len(connection.replies()) == 2


async def test_a_closed_connection_leaves_nothing_to_the_garbage_collector() -> None:
    """The collector runs rarely: memory would grow with clients that come and go."""
    sent = [b"", hot(b"a"), request(b"a"), hot(b"a") + request(b"b") + hot(b"c"), hot(b"a")[:-1]]
    gc.disable()
    try:
        protocols = {}
        connections = [Connection(serving(Echo())) for _ in sent]
        for connection, piece in zip(connections, sent, strict=True):
            connection.send(piece)
            await turns()
            protocols[id(connection.protocol)] = piece

        def in_memory() -> list[bytes]:
            """Return what the living protocols received. Compiled classes have no weak references."""
            found = {id(one) for one in gc.get_objects() if isinstance(one, HttpProtocol)}
            return [piece for protocol, piece in protocols.items() if protocol in found]

        assert in_memory() == sent
        for connection in connections:
            connection.leave()
            del connection.protocol
        await turns()

        assert in_memory() == []
    finally:
        gc.enable()
