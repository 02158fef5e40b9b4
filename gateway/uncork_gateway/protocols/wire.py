"""What a protocol must be able to do so that its requests share a call, and the reply is dealt out to them.

Bodies are cut and joined as they came, byte by byte: nothing is read as a number or text and written again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from uncork_gateway.headers import Header


class Content(NamedTuple):
    """A body, and the headers that say how to read it: content type, length of the JSON before tensors.

    Names are in lower case.
    """

    body: bytes
    headers: tuple[Header, ...] = ()

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; None if it is not there."""
        return next((value for key, value in self.headers if key == name), None)


class Unmergeable(Exception):
    """A request that must not share a call with others; the message says why."""


class WrongReply(Exception):
    """A reply to a merged call cannot be dealt out to its requests; the message says why."""


class Mergeable(Protocol):
    """A request that was read. Only requests of one ``key`` share a call."""

    @property
    def rows(self) -> int:
        """How many rows it has, from 1."""
        ...

    @property
    def key(self) -> Hashable:
        """All that must be equal in requests that share a call."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of its body."""
        ...


Q = TypeVar("Q", bound=Mergeable)
R = TypeVar("R")


class Wire(Protocol[Q, R]):
    """One protocol: ``Q`` is a request in it that was read, ``R`` what a reply has for one request."""

    def parse(self, content: Content) -> Q:
        """Read a request.

        Raises:
            BadRequest: if it is malformed.
            Unmergeable: if it must be sent on as it is, alone.
        """
        ...

    def cut(self, request: Q, most_rows: int) -> list[Q]:
        """The request in parts of at most ``most_rows`` rows, in order; itself if it is no larger."""
        ...

    def merge(self, requests: Sequence[Q]) -> Content:
        """One call for requests of one key, their rows in order."""
        ...

    def split(self, reply: Content, requests: Sequence[Q]) -> list[R]:
        """What the reply to a merged call has for each request.

        Raises:
            WrongReply: if it is not a reply to so many rows.
        """
        ...

    def join(self, parts: Sequence[R]) -> R:
        """What the parts of a request that was cut got, as if it had not been.

        Raises:
            WrongReply: if they do not fit together.
        """
        ...

    def render(self, reply: R, request: Q, *, batch_id: str) -> Content:
        """The answer to one request."""
        ...
