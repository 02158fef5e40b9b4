"""Merged calls that a server refused: which requests to send again together, and which are at fault."""

import re
from collections.abc import Awaitable, Callable, Sequence, Sized
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
    """Return the most rows that a server accepts in a call, if it refused one because it had more."""
    call = refusal.call
    text = refusal.body[:_LONGEST_TEXT].decode("latin-1") if call is None else call.text
    found = _ACCEPTED_ROWS.search(text)
    return int(found[found.lastindex or 0]) if found else None


def groups(rows: Sequence[int], most: int) -> list[range]:
    """Divide requests, in order, into groups of at most ``most`` rows; a larger request is alone."""
    found, begin, total = [], 0, 0
    for at, count in enumerate(rows):
        if at > begin and total + count > most:
            found.append(range(begin, at))
            begin, total = at, 0
        total += count
    return [*found, range(begin, len(rows))]


def refused(requests: Sized, refusal: ServerResponse) -> list[ServerResponse]:
    """Return the result of each request of a call that was refused.

    The refusal may have values of any of the requests, so it is passed on only if there was one.
    """
    return [refusal] if len(requests) == 1 else [refusal.for_several()] * len(requests)


async def ask_or_bisect(group: range, ask: Ask[T]) -> list[T | ServerResponse]:
    """Return the results of requests in one call; if it is refused, search for those at fault."""
    answers = await ask(group)
    return [*answers] if isinstance(answers, list) else await bisect(group, answers, ask)


async def bisect(group: range, refusal: ServerResponse, ask: Ask[T]) -> list[T | ServerResponse]:
    """Find which requests make a call fail, and get the others their answers.

    The call for all of them was refused. Level by level, each refused group is halved and its halves are
    asked again: with one bad request that is two calls per level, at most 2 * ceil(log2(count)). A request
    gets the answer to the last group that contained it; a refusal of several requests, without its text. If
    more than four groups of a level are refused, the cause is no single request, and the search ends; if the
    server accepts one of their requests alone, it cannot run merged ones, and the others are asked alone.
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
