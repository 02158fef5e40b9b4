"""Merged calls that a server refused: finds the requests at fault, and repeats the others."""

import re
from collections.abc import Awaitable, Callable, Sized
from typing import TypeVar

from uncork_gateway.backends.model_servers.server import ServerResponse

_MOST_FAILING = 4
# Of Triton, and of TensorFlow Serving with batching. Both check the number before they run anything.
_ACCEPTED_ROWS = re.compile(r"batch-size must be <= (\d+)|larger than maximum input batch size (\d+)")
_LONGEST_TEXT = 1000

T = TypeVar("T")
Ask = Callable[[range], Awaitable[list[T] | ServerResponse]]
"""Makes one call for some requests of a batch; returns their results, or a refusal of all."""


def accepted_rows(refusal: ServerResponse) -> int | None:
    """Return the most rows that the server accepts in a call, if it says so in a refusal; else None."""
    call = refusal.call
    text = refusal.body[:_LONGEST_TEXT].decode("latin-1") if call is None else call.text
    found = _ACCEPTED_ROWS.search(text)
    return int(found[found.lastindex or 0]) if found else None


def refused(requests: Sized, refusal: ServerResponse) -> list[ServerResponse]:
    """Return a result for each request of a refused call.

    The refusal may quote any of the requests, so its text is passed on only to a single request.
    """
    return [refusal] if len(requests) == 1 else [refusal.for_several()] * len(requests)


async def ask_or_bisect(group: range, ask: Ask[T]) -> list[T | ServerResponse]:
    """Return the results of requests in one call; if the server refuses it, find the requests at fault."""
    answers = await ask(group)
    return [*answers] if isinstance(answers, list) else await bisect(group, answers, ask)


async def bisect(group: range, refusal: ServerResponse, ask: Ask[T]) -> list[T | ServerResponse]:
    """Find the requests that make a call fail, and get the results of all others.

    The server has refused the call for the whole group. Level by level, each refused group is halved, and
    each half is sent again: with one bad request, that is two calls per level, at most 2 * ceil(log2(count)).
    A request gets the response to the last group that contained it; a refusal of several requests loses its
    text. If more than four groups of a level are refused, no single request is the cause, and the search
    ends. If the server then accepts one of the requests alone, it cannot run merged calls, and the others are
    sent alone too.
    """
    answers: dict[int, T | ServerResponse] = dict(zip(group, refused(group, refusal), strict=True))
    failing = [group]

    async def is_refused(part: range) -> bool:
        answer = await ask(part)
        each = refused(part, answer) if isinstance(answer, ServerResponse) else answer
        answers.update(zip(part, each, strict=True))
        return isinstance(answer, ServerResponse)

    while 0 < len(failing) <= _MOST_FAILING:
        halves = [
            half for part in failing if (middle := len(part) // 2) for half in (part[:middle], part[middle:])
        ]
        failing = [half for half in halves if await is_refused(half)]
    left = [part[at : at + 1] for part in failing if len(part) > 1 for at in range(len(part))]
    if left and not await is_refused(left[0]):
        for alone in left[1:]:
            await is_refused(alone)
    return [answers[at] for at in group]
