"""Replies to the parts of a request, joined."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from uncork_gateway.protocols.wire import UncertainReply

R = TypeVar("R")


def join_by_rows(join: Callable[[Sequence[R]], R], parts: Sequence[R]) -> R:
    """Join replies of which the test knows that equal values are one for each row."""
    try:
        return join(parts)
    except UncertainReply as error:
        joined: R = error.joined
        return joined
