"""The handlers of POST requests by path, and the heads that clients have sent before."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from uncork_gateway.headers import path_of
from uncork_gateway.interfaces import Handler

_MOST_KNOWN = 4096
_LONGEST_KNOWN_BYTES = 4096


class Known(NamedTuple):
    """A parsed head, with the handler of its path."""

    handler: Handler[Any]
    head: Any
    length: int
    """Bytes of the body."""


class RouteTable:
    """The handlers of POST requests by path, and the heads already parsed.

    Heads are compared byte by byte, so an identical head has the same result.

    Args:
        resolve: finds the handler of a target whose path is not in the table.
    """

    def __init__(self, resolve: Callable[[bytes], Handler[Any] | None] | None = None) -> None:
        self.handlers: dict[bytes, Handler[Any]] = {}
        self.known: dict[bytes, Known] = {}
        self._resolve = resolve

    def replace(self, handlers: Mapping[bytes, Handler[Any]]) -> None:
        """Replace the handlers; open requests keep theirs."""
        self.handlers = dict(handlers)
        self.forget_heads()

    def forget_heads(self) -> None:
        """Forget the parsed heads, so that the next ones are parsed with the current settings."""
        self.known = {}

    def find(self, target: bytes) -> Handler[Any] | None:
        """Return the handler of the target's path, or else the result of ``resolve``."""
        handler = self.handlers.get(target) or self.handlers.get(path_of(target))
        if handler is None and self._resolve is not None:
            handler = self._resolve(target)
        return handler

    def learn(self, chunk: bytes, received: int, known: Known) -> None:
        """Remember ``chunk`` as a head if it holds exactly one head, not very long, and part of the body.

        ``received`` is the number of body bytes that the parser found in it. The head need not end at the
        first empty line: there may be empty lines before it, or other line breaks in it.
        """
        end = chunk.find(b"\r\n\r\n") + 4
        if known.length and len(chunk) == end + received and end <= _LONGEST_KNOWN_BYTES:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[chunk[:end]] = known
