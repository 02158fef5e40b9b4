"""Parses the requests of a connection with httptools, and limits them."""

import httptools

from uncork_gateway.connection.client_limits import (
    ClientLimits,
    check_head,
    check_header,
    check_size,
    too_many_fields,
)
from uncork_gateway.connection.parts import ConnectionOfParts
from uncork_gateway.connection.state import HEAD
from uncork_gateway.connection.turn import CHUNK_WORK, HEAD_WORK, Turn
from uncork_gateway.errors import BadRequest, GatewayError, unexpected
from uncork_gateway.headers import Header, header_lines


class StopParsing(Exception):
    """Raised by a receiver to skip the rest of the input."""


class RequestParser:
    """Parses the requests of one connection.

    ``receiver`` gets each request; :meth:`feed` passes on GatewayErrors that it raises. ``limits`` are those
    for the client; the parser charges heads and pieces of bodies to ``turn``.

    Attributes:
        method: the method of the current or latest request, as are all attributes.
        target: path and query as the client wrote them.
        headers: the headers, with names as the client wrote them.
        body_left: bytes of the body not received yet, by its declared length; else 0.
    """

    def __init__(self, receiver: ConnectionOfParts, limits: ClientLimits, turn: Turn) -> None:
        self._turn = turn
        self._max_fields = limits.max_header_fields
        self._allowed_hosts = limits.allowed_hosts
        self.method = self.target = b""
        self.headers: list[Header] = []
        self.body_left = 0
        self._receiver = receiver
        self._unused_bytes = 0
        """Input since the last head or piece of a body. Chunk extensions and trailers can be endless."""
        self._parser = _make_parser(self)

    def close(self) -> None:
        """Drop the reference cycle with httptools."""
        del self._parser

    @property
    def http_version(self) -> str:
        return self._parser.get_http_version()

    @property
    def keep_alive(self) -> bool:
        """True if the client may send more requests on the connection; HTTP/1.0 clients must ask for that."""
        return bool(self._parser.should_keep_alive())

    @property
    def content_length(self) -> int:
        """The declared length of the body; 0 if the client declares none."""
        return next((int(value) for name, value in self.headers if name.lower() == b"content-length"), 0)

    def accepts_like(self, limits: ClientLimits) -> bool:
        """Return True if a parser with these limits accepts the same heads."""
        return (self._max_fields, self._allowed_hosts) == (limits.max_header_fields, limits.allowed_hosts)

    def feed(self, data: bytes) -> None:
        """Parse input. Offers of another protocol, such as ``h2c``, are ignored.

        Raises:
            GatewayError: if the input cannot be read, or the receiver rejects it.
        """
        self._unused_bytes += len(data)
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as offer:
                    data = self._head_without_offer() + data[offer.args[0] :]
                    self._parser = _make_parser(self)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, StopParsing):
                return
            raise _cause_of(error) from None
        except httptools.HttpParserError as error:
            raise BadRequest(f"malformed HTTP/1.1 request: {error}") from None
        check_size(self._unused_bytes, self.target)

    def _head_without_offer(self) -> bytes:
        """Return the parsed head without the offer of another protocol, after which the parser would stop."""
        kept = [header for header in self.headers if header[0].lower() != b"upgrade"]
        version = self.http_version.encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.method, self.target, version, header_lines(kept))

    # Called by httptools

    def on_message_begin(self) -> None:
        self._receiver.message_begins()
        self.target = b""
        self.headers = []

    def on_url(self, piece: bytes) -> None:
        self.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, without the space that httptools leaves after it (RFC 9110, 5.5)."""
        if self._receiver.state is not HEAD:
            # A trailer must not pass for a header. This one would make httptools skip further requests.
            if name.lower() in (b"connection", b"proxy-connection"):
                raise BadRequest("Connection cannot be a trailer; send it in the head of the request")
            return
        value = value.rstrip(b" \t")
        check_header(name, value)
        if len(self.headers) == self._max_fields:
            raise too_many_fields(self._max_fields)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.method = self._parser.get_method()
        self._unused_bytes = 0
        self._turn.left -= HEAD_WORK
        check_head(
            self.method,
            self.target,
            self.headers,
            version=self.http_version,
            allowed_hosts=self._allowed_hosts,
        )
        self.body_left = self.content_length
        if not self._parser.should_upgrade():
            self._receiver.head_complete()

    def on_body(self, piece: bytes) -> None:
        self._unused_bytes = 0
        self._turn.left -= CHUNK_WORK
        self.body_left = max(0, self.body_left - len(piece))
        self._receiver.body_received(piece)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._receiver.message_complete()


def _cause_of(error: httptools.HttpParserCallbackError) -> GatewayError:
    """Return the error that a callback raised, without its traceback, which would be a reference cycle."""
    cause = error.__context__
    return cause if isinstance(cause, GatewayError) else unexpected(cause or error)


def _make_parser(parser: RequestParser) -> httptools.HttpRequestParser:
    made = httptools.HttpRequestParser(parser)
    # The connection decides about input after its last request.
    made.set_dangerous_leniencies(lenient_data_after_close=True)
    return made
