"""The interface of a protocol whose requests can share a call.

Bodies are cut and joined as bytes: no number or text is decoded and written again.
"""

import operator
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from uncork_gateway.headers import Header, value_of
from uncork_gateway.protocols.limits import TooMany

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


@contextmanager
def passing_on() -> Iterator[None]:
    """Have a request that is too large to be taken apart passed on unchanged: TooMany becomes Unmergeable."""
    try:
        yield
    except TooMany as error:
        raise Unmergeable(str(error)) from error


class WrongReply(Exception):
    """The reply to a merged call cannot be split between its requests; the message says why."""


class UncertainReply(WrongReply):
    """The replies to the parts of a request can be joined, but to two different replies.

    A value that is equal in all parts, with as many rows as each part, is one for each row or one for all.

    Attributes:
        joined: the reply if such values are one for each row.
    """

    def __init__(self, joined: Any) -> None:
        super().__init__("the responses to the parts of a request are equal in a value with a row for each")
        self.joined = joined


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
            UncertainReply: if a value may be one for each row, or one for all rows.
            WrongReply: if they do not fit together.
        """

    def render(self, reply: R, request: Q, *, batch_id: str) -> Content:
        """Write the answer to one request."""


def is_certain(by_rows: Sequence[bool], equal: Sequence[bool]) -> bool:
    """Return whether it is certain which values of the replies to the parts of a request are for each row.

    At least one value of a reply is for each row, so the only value that can be is certain.

    Args:
        by_rows: for each value of the reply, whether it has as many rows as the part in every part.
        equal: for each value, whether it is equal in all parts.

    Raises:
        WrongReply: if no value can be one for each row.
    """
    if not any(by_rows):
        raise WrongReply("the responses to the parts of a request have no value for each row")
    return sum(by_rows) == 1 or not any(map(operator.and_, by_rows, equal))


def if_certain(joined: R, certain: bool) -> R:
    """Return the joined replies to the parts of a request.

    Raises:
        UncertainReply: if they are not certain.
    """
    if not certain:
        raise UncertainReply(joined)
    return joined
