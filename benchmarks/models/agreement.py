"""Check that a service returns the same numbers to requests in a batch as to each of them alone.

Floating-point sums depend on the order of addition, and so on the shape of a batch: "the same" means close.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.rounds import ask_alone
from uncork_loadtests.servers import BenchError, Server

TOLERANCE = 1e-4
"""Tolerated difference, relative and absolute, as in `numpy.allclose`."""
_TIMEOUT_S = 120.0
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The result of a successful check."""

    requests: int
    largest_batch: int
    """In rows."""
    largest_difference: float

    def __str__(self) -> str:
        most = self.largest_difference
        verdict = f"differ by at most {most:.1g} from" if most else "are equal to"
        return (
            f"The answers to {self.requests} different requests, sent at once and run in batches of up to "
            f"{self.largest_batch}, {verdict} the answers that each gets alone."
        )


def check_agreement(server: Server, *, path: str, bodies: Sequence[bytes]) -> Agreement:
    """Send all requests one after the other, then all at once, and compare the answers.

    Raises:
        BenchError: if an answer is missing or differs, no requests shared a batch, or all answers are the
        same.
    """
    answers = ask_alone(server, path=path, bodies=bodies)
    if len(set(answers)) < 2:
        raise BenchError(f"{server.name}: all answers are equal, so the comparison proves nothing")
    alone = list(map(_numbers, answers))
    replies = asyncio.run(_ask_together(server.url(path), bodies))
    together = [_numbers(reply.content) for reply in replies]
    largest_batch = max(int(reply.headers["x-batch-size"]) for reply in replies)
    if largest_batch < 2:
        raise BenchError(f"{server.name}: no two of {len(bodies)} requests sent at once shared a batch")
    return Agreement(
        requests=len(bodies),
        largest_batch=largest_batch,
        largest_difference=largest_difference(alone, together),
    )


def largest_difference(alone: Sequence[NDArray[Any]], together: Sequence[NDArray[Any]]) -> float:
    """Return the largest difference of two numbers.

    Raises:
        BenchError: if two answers have different shapes, or a difference is beyond the tolerance.
    """
    differences = [0.0]
    for at, (one, other) in enumerate(zip(alone, together, strict=True)):
        if one.shape != other.shape:
            raise BenchError(
                f"request {at} is answered with shape {one.shape} alone, {other.shape} in a batch"
            )
        difference = float(np.abs(one - other).max(initial=0.0))
        if not np.allclose(other, one, rtol=TOLERANCE, atol=TOLERANCE):
            raise BenchError(
                f"the answer to request {at} in a batch differs from that alone by {difference:g}"
            )
        differences.append(difference)
    return max(differences)


async def _ask_together(url: str, bodies: Sequence[bytes]) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=len(bodies))
    try:
        async with httpx.AsyncClient(limits=limits, timeout=_TIMEOUT_S) as http:
            replies = await asyncio.gather(*(http.post(url, content=body, headers=_JSON) for body in bodies))
    except httpx.HTTPError as error:
        raise BenchError(f"no answer to requests sent at once: {error!r}") from error
    for reply in replies:
        if reply.status_code != 200:
            raise BenchError(f"one of the requests sent at once got {reply.status_code}: {reply.text[:500]}")
    return replies


def _numbers(answer: bytes) -> NDArray[Any]:
    return np.array(msgspec.json.decode(answer), dtype=float)
