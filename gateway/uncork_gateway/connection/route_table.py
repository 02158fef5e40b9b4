"""The handlers of POST requests by path, and the heads that clients have sent before."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uncork_gateway.headers import IDS, REQUEST_ID, Header, path_of, request_id_of
from uncork_gateway.interfaces import Handler

_MOST_KNOWN = 4096
_LONGEST_KNOWN_BYTES = 4096
_ID = re.compile(rb"\r\n(%b): ?([!-~]{1,256})(?=\r\n)" % IDS, re.IGNORECASE)
_MOST_IDS = 8


class Known(NamedTuple):
    """A parsed head, with the handler of its path.

    Attributes:
        length: bytes of the body.
        target: path and query.
        request_id: the id that the request came with; empty if it has none.
        cors: header lines of the response, for pages of other origins.
        others: the headers other than ids, if ``head`` depends on ids; else None.
    """

    handler: Handler[Any]
    head: Any
    length: int
    target: bytes
    request_id: bytes = b""
    cors: bytes = b""
    others: Sequence[Header] | None = None


class RouteTable:
    """The handlers of POST requests by path, and the heads already parsed.

    Heads are compared byte by byte, so an identical head has the same result. Lines with ids, such as
    ``X-Request-Id``, are left out: with them no two heads would be identical.

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

    def known_head(self, head: bytes) -> Known | None:
        """Return the known head that differs from this one only in ids; None without ids or such a head."""
        if len(head) > _LONGEST_KNOWN_BYTES:
            return None
        key, ids = _without_ids(head)
        known = self.known.get(key) if ids else None
        if known is None:
            return None
        handler, read, length, target, request_id, cors, others = known
        if others is not None:
            read = handler.read_head([*others, *ids], target)
        return Known(handler, read, length, target, request_id or request_id_of(ids), cors)

    def learn(self, chunk: bytes, received: int, known: Known, headers: Sequence[Header]) -> None:
        """Remember ``chunk`` as a head if it holds exactly one head, not very long, and part of the body.

        ``received`` is the number of body bytes that the parser found in it. The head need not end at the
        first empty line: there may be empty lines before it, or other line breaks in it.
        """
        end = chunk.find(b"\r\n\r\n") + 4
        if not known.length or len(chunk) != end + received or end > _LONGEST_KNOWN_BYTES:
            return
        key, ids = _without_ids(chunk[:end])
        if ids:
            names = {name.lower() for name, _ in ids}
            others = [header for header in headers if header[0].lower() not in names]
            if len(others) + len(ids) != len(headers):
                return  # There is another line of this name.
            if REQUEST_ID in names:
                known = known._replace(request_id=b"")
            if known.handler.read_head(others, known.target) != known.head:
                known = known._replace(others=others)
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        self.known[key] = known


def _without_ids(head: bytes) -> tuple[bytes, list[Header]]:
    """Return a head whose lines with ids are replaced by their names at its end, and the ids."""
    pieces = _ID.split(head, maxsplit=_MOST_IDS)
    if len(pieces) == 1:
        return head, []
    names = pieces[1::3]
    return b"".join([*pieces[::3], *names]), [*zip(names, pieces[2::3], strict=True)]
