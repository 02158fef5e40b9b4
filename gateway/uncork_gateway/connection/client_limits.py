"""A connection whose client may send anything, slowly or for ever, or leave: what is done then.

uvicorn's protocol trusts its clients with all that the parser lets through.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from uncork_gateway.connection.timeouts import ClientLimits, Patience, Stage
from uncork_gateway.errors import BadRequest, GatewayError, Unavailable, Unreadable, unexpected

_MOST_TARGET_BYTES = 16 * 1024
_MOST_HEAD_BYTES = 64 * 1024
_MOST_HEADERS = 256
_MOST_DIGITS = 20
_LINGER_S = 5.0
_FIRST_PROBE_S = 0.01


class WaryProtocol(HttpToolsProtocol, ABC):
    """One connection, without what it is for."""

    def __init__(self, limits: ClientLimits, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._limits = limits
        self._patience: Patience | None = None
        self._exchange: Any = None
        """The request that is being parsed, if it is on the short way."""
        self._serving: Any = None
        """The request whose turn it is, or was."""
        self._between = True
        """Whether the parser stands between two requests."""
        self._in_body = False
        """Whether it stands between the head and the end of one."""
        self._deaf = False
        """Whether nothing more is read."""
        self._hung_up = False
        """Whether nothing more will be sent, and the client is to close."""
        self._ended = False
        """Whether the client has said that nothing more will come."""
        self._begun = self._answered = self._unused_bytes = 0
        self.url = b""
        self.body_bytes = 0

    @abstractmethod
    def _refuse(self, error: GatewayError) -> None:
        """Answer with an error when all requests before are answered, and close."""

    @abstractmethod
    def _parse(self, data: bytes) -> None:
        """Have bytes parsed; GatewayErrors of callbacks become the answer."""

    @property
    def _is_idle(self) -> bool:
        return not self.pipeline and (self._serving is None or self._serving.response_complete)

    # Ends

    def continue_(self) -> None:
        """Tell a client that waits for it (``Expect: 100-continue``) to send its body."""
        if self.parser.get_http_version() != "1.0":  # which knows of no answers before the answer
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def hang_up(self) -> None:
        """Close; a client that still sends, and would see a reset, gets time to read its answer first."""
        if self._between or self._ended or self.scheme == "https":
            self.transport.close()
            return
        if self._hung_up:
            return
        assert self._patience is not None
        self._deaf = self._hung_up = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self._patience.linger(_LINGER_S, self.transport.abort)

    def give_up(self, error: GatewayError) -> None:
        """Answer what is being read with ``error``, in its turn, and read no more."""
        if self._deaf:
            return
        self._deaf, self._between = True, False
        in_body, self._in_body = self._in_body, False
        cycle: Any = self.cycle
        if not in_body:
            self._refuse(error)
        elif cycle.response_complete or (self._exchange is None and cycle.response_started):
            self.hang_up()
        elif self._exchange is not None:
            self._exchange.broken(error)
        else:
            _disconnect(cycle)
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()
            else:
                self._serving = None
            self._refuse(error)

    def close(self) -> None:
        """Close without a word."""
        self.transport.close()

    # What the connection's patience looks at

    @property
    def stage(self) -> Stage:
        """What the connection is about now."""
        if self._deaf:
            return Stage.over
        if not self._between:
            return Stage.body if self._in_body else Stage.head
        if not self._is_idle:
            return Stage.answer
        return Stage.idle if self._answered else Stage.new

    @property
    def exchanges(self) -> tuple[int, int]:
        """How many requests have begun to come, and how many answers have gone."""
        return self._begun, self._answered

    @property
    def is_paused(self) -> bool:
        """Whether it is we who do not read."""
        return self.flow.read_paused

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch how long the client takes; refuse it if there are too many already."""
        super().connection_made(transport)
        self._patience = Patience(self, self._limits, keep_alive_s=self.timeout_keep_alive, loop=self.loop)
        if len(self.connections) > self._limits.max_connections:
            self._deaf = True
            self._refuse(Unavailable("there are too many connections", retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests that wait for an answer."""
        if self._patience is not None:
            self._patience.stop()
        for cycle in (self._serving, *(cycle for cycle, _ in self.pipeline)):
            if cycle is None or cycle.response_complete:
                continue
            if is_exchange(cycle):
                cycle.leave()
            else:
                _disconnect(cycle)
        if is_exchange(self.cycle):
            self.cycle = None  # type: ignore[assignment]
        super().connection_lost(exc)
        # What points back here would be left to the garbage collector, which looks so rarely that thousands
        # of connections could pile up.
        self.cycle = self._exchange = self._serving = self._patience = None  # type: ignore[assignment]
        self.pipeline.clear()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Go on for as long as something is to be answered; returns whether that is so.

        A client that has closed and one that has only ended its sending look the same until something is
        sent to them, which the system of the first refuses. So they are sent what every client must skip.
        In the middle of an answer nothing can be, so it is taken for gone. TLS knows no half of a connection.
        """
        if self.scheme == "https" or (not self._ended and self._is_answering):
            return False
        if not self._ended:
            self._ended = True
            if not self._between:
                self.give_up(BadRequest("the connection ended before the request did"))
            if not self._is_idle:
                self.cycle.keep_alive = False
                self._probe(_FIRST_PROBE_S)
        return not self._is_idle

    @property
    def _is_answering(self) -> bool:
        """Whether an answer has begun that comes in pieces."""
        return not self._is_idle and getattr(self._serving, "response_started", False)

    def _probe(self, again_s: float) -> None:
        """See whether there is still a client: one that has gone shows the second time at the earliest."""
        if self._is_idle or self._is_answering or self.transport.is_closing():
            return
        self.continue_()
        self.loop.call_later(again_s, self._probe, 2 * again_s)

    # What is read

    def _feed(self, data: bytes) -> None:
        """Have bytes parsed, unless more of what is of no use comes than there may be of it."""
        self._unused_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, _Enough):
                self.give_up(cause if isinstance(cause, GatewayError) else unexpected(cause or error))
        except httptools.HttpParserError as error:
            self.give_up(BadRequest(f"this is not HTTP/1.1: {error}"))
        else:
            if self._unused_bytes > _MOST_HEAD_BYTES:
                self.give_up(self._too_long())

    def _too_long(self) -> Unreadable:
        if len(self.url) > _MOST_TARGET_BYTES:
            return Unreadable(f"the target is longer than {_MOST_TARGET_BYTES} bytes", 414)
        most = f"{_MOST_HEAD_BYTES} bytes or {_MOST_HEADERS} fields"
        return Unreadable(f"the header section is larger than {most}", 431)

    def _check_begin(self) -> None:
        if self.cycle is not None and not self.cycle.keep_alive:
            self._deaf = True
            raise _Enough
        self._begun += 1

    def _check_header(self, name: bytes, value: bytes) -> None:
        if len(value) > _MOST_DIGITS and name.lower() == b"content-length":
            raise BadRequest(f"a content length has at most {_MOST_DIGITS} digits")
        if len(self.headers) == _MOST_HEADERS:
            raise self._too_long()
        if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
            told = value.decode("latin-1")
            raise BadRequest(f"the transfer encoding {told!r} is not accepted; send chunked")

    def _check_head(self) -> None:
        self._unused_bytes = 0
        size = sum([len(name) + len(value) for name, value in self.headers])
        if len(self.url) > _MOST_TARGET_BYTES or size > _MOST_HEAD_BYTES:
            raise self._too_long()
        if self.parser.get_method() == b"CONNECT":
            raise BadRequest("this is no proxy for CONNECT")

    def _note_body(self, piece: bytes) -> None:
        self._unused_bytes = 0
        self.body_bytes += len(piece)


class _Enough(Exception):
    """What comes now was sent in vain: the connection is going to be closed."""


def is_exchange(cycle: Any) -> bool:
    """Whether a request is on the short way."""
    return hasattr(cycle, "leave")


def _disconnect(cycle: Any) -> None:
    """Tell an application that its client has gone."""
    cycle.disconnected = True
    cycle.message_event.set()
