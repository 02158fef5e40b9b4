"""Chooses the version of a service for requests that name none."""

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
    """A version that may serve requests that name no version.

    Attributes:
        weight: its share of those requests, relative to the other versions; None for no share.
        shadow: True if it only gets copies of requests, whose results are dropped.
        is_ready: returns True if it is ready.
    """

    version: str
    weight: float | None = None
    shadow: bool = False
    is_ready: Callable[[], bool] = lambda: True


class VersionChoice(Generic[Option]):
    """Chooses a version, and returns the option that belongs to it.

    If ready versions have weights, it chooses one of these at random, in proportion. Otherwise it chooses the
    highest ready version, or the highest if none is ready; one with the weight 0 only if there is no other.
    It chooses a shadow only if all versions are shadows.

    Args:
        random: returns a number from 0 up to, but excluding, 1.
    """

    def __init__(
        self,
        options: Sequence[tuple[Candidate, Option]],
        *,
        random: Callable[[], float] = random.random,
    ) -> None:
        ordered = sorted(options, key=lambda one: (one[0].weight != 0, int(one[0].version)), reverse=True)
        answering = [one for one in ordered if not one[0].shadow]
        self._options = answering or ordered
        self._random = random

    def choose(self) -> Option:
        """Return the option of the version that serves the next request."""
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


def described(options: Sequence[tuple[Candidate, Option]]) -> Option:
    """Return the option that pages describe: of several versions with weights, the highest that is ready."""
    return VersionChoice(options, random=lambda: 0.0).choose()


class VersionedRoute:
    """A path that several versions serve."""

    def __init__(self, options: Sequence[tuple[Candidate, Handler[Any]]]) -> None:
        self._routes = [route for _, route in options]
        self._choice = VersionChoice([(one, index) for index, (one, _) in enumerate(options)])

    def read_head(self, headers: Sequence[Header], target: bytes) -> tuple[Any, ...]:
        """Read the head for each version, as their dialects may need different headers."""
        return tuple(route.read_head(headers, target) for route in self._routes)

    def open(self, connection: Connection, head: tuple[Any, ...], *, keep_alive: bool) -> FastPathRequest:
        chosen = self._choice.choose()
        return self._routes[chosen].open(connection, head[chosen], keep_alive=keep_alive)
