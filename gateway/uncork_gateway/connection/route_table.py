"""Where requests go that are batched, and the heads that clients send again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from uncork_gateway.connection.timeouts import BodyPool, ClientLimits
from uncork_gateway.errors import GatewayError

if TYPE_CHECKING:
    from uncork_gateway.connection.protocol import HttpProtocol
    from uncork_gateway.telemetry.access_log import AccessLog
    from uncork_gateway.telemetry.traces import Traces

Header = tuple[bytes, bytes]
Head = TypeVar("Head")
_MOST_KNOWN = 4096
_LONGEST_KNOWN_BYTES = 4096


class Exchange(Protocol):
    """One request on the short way; it is the connection's ``cycle``, as uvicorn calls it.

    The connection calls ``start`` when it is the request's turn, which with pipelining may be after its
    body has come; the request calls :meth:`HttpProtocol.reply`, once.
    """

    keep_alive: bool
    response_complete: bool

    def start(self) -> None:
        """All requests before it on the connection have been answered."""

    def take(self, piece: bytes) -> None:
        """A piece of its body."""

    def complete(self) -> None:
        """Its body is whole."""

    def whole(self, body: bytes) -> None:
        """It is its turn, and this is all of its body: ``start``, ``take`` and ``complete`` in one."""

    def broken(self, error: GatewayError) -> None:
        """No more of its body will come, for a reason to be told when it is its turn."""

    def leave(self) -> None:
        """Its client has gone."""


class StreamedExchange(Exchange, Protocol):
    """One whose answer is sent in pieces."""

    response_started: bool


class HotHandler(Protocol[Head]):
    """Takes the requests to one path."""

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """What the handler wants to know of headers and target. Names are as the client wrote them."""

    def open(self, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> Exchange:
        """A request whose head has come."""


class Known(NamedTuple):
    """What was made of a head that has come before."""

    handler: HotHandler[Any]
    head: Any
    length: int
    """Bytes of the body."""


class HotRoutes:
    """The handlers of POST requests by path, and the heads that clients send again and again.

    Heads are kept as they came, byte by byte, so that another look at them would see the same.

    Args:
        resolve: finds the handler of a target that has none by its path.
        admit: whether a request with these headers may take the short way; one that may not goes to the app,
            which refuses it.
        access_log: logs all requests, also those that go to the app; None: they are not logged.
        traces: has a span for each request that takes the short way; None: nobody wants any.
    """

    def __init__(
        self,
        resolve: Callable[[bytes], HotHandler[Any] | None] | None = None,
        *,
        limits: ClientLimits,
        pool: BodyPool,
        admit: Callable[[Sequence[Header]], bool] | None = None,
        access_log: AccessLog | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.limits = limits
        self.pool = pool
        self.access_log = access_log
        self.traces = traces
        self.handlers: dict[bytes, HotHandler[Any]] = {}
        self.admit = admit or (lambda headers: True)
        self._resolve = resolve
        self.known: dict[bytes, Known] = {}
        self._headers: list[Header] = []
        self._starts: dict[int, bytes] = {}
        self.closing = False
        """Whether connections are closed when what was asked on them has been answered."""

    def replace(self, handlers: Mapping[bytes, HotHandler[Any]]) -> None:
        """Put other handlers in force for the requests to come."""
        self.handlers = dict(handlers)
        self.known = {}

    def find(self, target: bytes) -> HotHandler[Any] | None:
        """The handler of a request target: that of its path, else what ``resolve`` finds for all of it."""
        handler = self.handlers.get(target) or self.handlers.get(path_of(target))
        if handler is None and self._resolve is not None:
            handler = self._resolve(target)
        return handler

    def reply_start(self, status: int, headers: list[Header]) -> bytes:
        """Status line and the server's own header lines; uvicorn gives other ``headers`` every second."""
        if headers is not self._headers:
            self._headers = headers
            self._starts.clear()
        start = self._starts.get(status)
        if start is None:
            start = self._starts[status] = STATUS_LINE[status] + header_lines(headers)
        return start

    def learn(self, head: bytes, known: Known) -> None:
        """Keep a head, unless it is unusually long."""
        if len(head) <= _LONGEST_KNOWN_BYTES:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[head] = known


def header_lines(headers: Iterable[Header]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def path_of(target: bytes) -> bytes:
    """The path of a request target, without query and escapes; empty if it has none."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserError:
            return b""
    return unquote_to_bytes(target.partition(b"?")[0])
