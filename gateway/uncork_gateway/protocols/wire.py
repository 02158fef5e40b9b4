"""The interface of a protocol whose requests can share a call.

Bodies are cut and joined as bytes: no number or text is decoded and written again.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from uncork_gateway.headers import Header, value_of

JSON = (b"content-type", b"application/json")


class Content(NamedTuple):
    """A body, and the headers that say how to read it: content type, and length of the JSON.

    Header names are in lower case.
    """

    body: bytes
    headers: tuple[Header, ...] = ()

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header; None if there is none."""
        return value_of(self.headers, name)


class Unmergeable(Exception):
    """The request cannot share a call with others; the message says why."""


class WrongReply(Exception):
    """The reply to a merged call cannot be split between its requests; the message says why."""


class Mergeable(Protocol):
    """A parsed request. Only requests with the same ``key`` share a call."""

    @property
    def rows(self) -> int:
        """The number of rows, at least 1."""

    @property
    def key(self) -> Hashable:
        """Everything that must be equal in requests that share a call."""

    @property
    def size_bytes(self) -> int:
        """The size of the body."""


Q = TypeVar("Q", bound=Mergeable)
R = TypeVar("R")


class Wire(Protocol[Q, R]):
    """One protocol: ``Q`` is a parsed request, ``R`` the share of a reply that belongs to one request."""

    def parse(self, content: Content) -> Q:
        """Parse a request.

        Raises:
            BadRequest: if it is malformed.
            Unmergeable: if it must be passed on unchanged, alone.
        """

    def cut(self, request: Q, most_rows: int) -> list[Q]:
        """Cut a request into parts of at most ``most_rows`` rows, in order."""

    def merge(self, requests: Sequence[Q]) -> Content:
        """Merge requests with one key into one call, their rows in order."""

    def split(self, reply: Content, requests: Sequence[Q]) -> list[R]:
        """Split the reply to a merged call between its requests.

        Raises:
            WrongReply: if it is not a reply to that many rows.
        """

    def join(self, parts: Sequence[R]) -> R:
        """Join the shares of the parts of one request.

        Raises:
            WrongReply: if they do not fit together.
        """

    def render(self, reply: R, request: Q, *, batch_id: str) -> Content:
        """Write the answer to one request."""
