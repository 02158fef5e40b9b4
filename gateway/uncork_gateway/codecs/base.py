"""What a codec is: the gateway's half of one kind of input.

It checks the structure of a request, counts and weighs its rows, and brings it to the form in which the
adapter of the same kind at the worker takes it; on the way back it turns the rows of the answer into the
client's form. It must be cheap: it runs on the event loop, once per request.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol


class Marshalled(NamedTuple):
    """A request ready for the dispatcher.

    ``body`` is JSON rows with commas between them. ``key`` separates requests that must not share a batch.
    ``single`` says that the client sent one row without the leading axis, and gets its answer so.
    ``cost`` is what all its rows weigh together; None if the api gives no cost.
    """

    body: bytes
    rows: int
    key: Hashable = None
    single: bool = True
    cost: float | None = None


class Codec(Protocol):
    """One kind of input."""

    def decode(self, body: bytes) -> Marshalled:
        """Check, count and weigh a request.

        Raises:
            BadRequest: if it is malformed, or has nothing to weigh it by.
        """
        ...

    def encode(self, rows: bytes, *, single: bool) -> bytes:
        """The body of an answer from its rows: JSON texts with commas between them."""
        ...
