"""The versions of a service: which of them answers a request that names none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from uncork_gateway.headers import Header
from uncork_gateway.interfaces import Connection, FastPathRequest, Handler

FIRST = "1"
"""The version of a service that has no other number."""

Option = TypeVar("Option")


class ServiceName(NamedTuple):
    """A service's name and version, written ``digits@2``; ``digits`` is version 1."""

    name: str
    version: str

    @classmethod
    def read(cls, text: str) -> ServiceName:
        name, _, version = text.partition("@")
        return cls(name, version or FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version that may answer requests that name none.

    Attributes:
        weight: its share of them, relative to the other versions; None: it has none.
        shadow: whether it only gets copies of requests, whose answers are dropped.
        is_ready: returns whether it can answer now.
    """

    version: str
    weight: float | None = None
    shadow: bool = False
    is_ready: Callable[[], bool] = lambda: True


class VersionChoice(Generic[Option]):
    """Chooses between versions, each of which has an option.

    With weights: one of the versions with a weight that are ready, at random in proportion. Without, or if
    none of those is ready: the highest that is ready. If none is ready: the highest. A shadow answers only if
    there is nothing else.

    Args:
        random: returns a number from 0 to below 1.
    """

    def __init__(
        self,
        options: Sequence[tuple[Candidate, Option]],
        *,
        random: Callable[[], float] = random.random,
    ) -> None:
        ordered = sorted(options, key=lambda one: int(one[0].version), reverse=True)
        answering = [one for one in ordered if not one[0].shadow]
        self._options = answering or ordered
        self._random = random

    def choose(self) -> Option:
        """Return the option of the version that answers the next request."""
        ready = [one for one in self._options if one[0].is_ready()]
        weighted = [(candidate.weight, option) for candidate, option in ready if candidate.weight]
        if not weighted:
            return (ready or self._options)[0][1]
        if len(weighted) == 1:
            return weighted[0][1]
        left = self._random() * sum(weight for weight, _ in weighted)
        for weight, option in weighted:
            left -= weight
            if left < 0:
                return option
        return weighted[-1][1]  # rounding


class VersionedRoute:
    """A path that several versions serve."""

    def __init__(self, options: Sequence[tuple[Candidate, Handler[Any]]]) -> None:
        self._routes = [route for _, route in options]
        self._choice = VersionChoice([(one, index) for index, (one, _) in enumerate(options)])

    def read_head(self, headers: Sequence[Header], target: bytes) -> tuple[Any, ...]:
        """Read the head for each version; their dialects may need other headers."""
        return tuple(route.read_head(headers, target) for route in self._routes)

    def open(self, connection: Connection, head: tuple[Any, ...], *, keep_alive: bool) -> FastPathRequest:
        chosen = self._choice.choose()
        return self._routes[chosen].open(connection, head[chosen], keep_alive=keep_alive)
