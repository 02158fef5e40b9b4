"""The interface of protocols whose requests can share a call.

Bodies are split and joined as bytes, without decoding numbers or texts.
"""

import operator
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from uncork_gateway.headers import Header, value_of
from uncork_gateway.protocols.raw_json import TooMany

JSON = (b"content-type", b"application/json")


class Content(NamedTuple):
    """A body, and the headers needed to read it: content type, and length of the JSON.

    Header names are in lower case.
    """

    body: bytes
    headers: tuple[Header, ...] = ()

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header; None if it is missing."""
        return value_of(self.headers, name)


class Unmergeable(Exception):
    """The request cannot share a call with others; the message says why."""


@contextmanager
def passing_on() -> Iterator[None]:
    """Convert TooMany to Unmergeable, so that a request too large to be split is sent on unchanged."""
    try:
        yield
    except TooMany as error:
        raise Unmergeable(str(error)) from error


class WrongReply(Exception):
    """The reply to a merged call cannot be split between its requests; the message says why."""


class UncertainReply(WrongReply):
    """The replies to the parts of a request can be joined in two different ways.

    A list that is equal in all parts, and has as many values as each part has rows, may hold a value per row,
    or be one value for all rows.

    Attributes:
        joined: the reply if such lists hold a value per row.
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
        """The batch key: all that must be equal in requests that share a call."""

    @property
    def size_bytes(self) -> int:
        """The size of the body."""


Q = TypeVar("Q", bound=Mergeable)
R = TypeVar("R")


class Wire(Protocol[Q, R]):
    """One protocol. ``Q`` is a parsed request, ``R`` one request's share of a reply."""

    def parse(self, content: Content) -> Q:
        """Parse a request.

        Raises:
            BadRequest: if the request is malformed.
            Unmergeable: if the request must be sent on unchanged, alone.
        """

    def cut(self, request: Q, most_rows: int) -> list[Q]:
        """Split a request into parts of at most ``most_rows`` rows, in order."""

    def merge(self, requests: Sequence[Q]) -> Content:
        """Merge requests with the same key into one call, with their rows in order."""

    def split(self, reply: Content, requests: Sequence[Q]) -> list[R]:
        """Split the reply to a merged call between its requests.

        Raises:
            WrongReply: if the reply does not fit the requests' number of rows.
        """

    def join(self, parts: Sequence[R]) -> R:
        """Join the replies to the parts of one request.

        Raises:
            UncertainReply: if a value may be a list of rows, or a single value for all rows.
            WrongReply: if the replies do not fit together.
        """

    def render(self, reply: R, request: Q, *, batch_id: str) -> Content:
        """Return the response to one request."""


def is_certain(by_rows: Sequence[bool], equal: Sequence[bool]) -> bool:
    """Return True if it is certain which values in the replies to a request's parts are lists of rows.

    At least one value of a reply is a list of rows, so a single candidate is certain.

    Args:
        by_rows: for each value, True if its length equals the number of rows in every part.
        equal: for each value, True if it is equal in all parts.

    Raises:
        WrongReply: if no value can be a list of rows.
    """
    if not any(by_rows):
        raise WrongReply("the responses to the parts of a request have no value for each row")
    return sum(by_rows) == 1 or not any(map(operator.and_, by_rows, equal))


def if_certain(joined: R, certain: bool) -> R:
    """Return ``joined`` if ``certain``.

    Raises:
        UncertainReply: otherwise.
    """
    if not certain:
        raise UncertainReply(joined)
    return joined
