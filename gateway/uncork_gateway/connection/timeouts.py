"""How much of the server one client may take up, and how long it may take to send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from uncork_dispatcher.plural import plural
from uncork_gateway.errors import GatewayError, Unreadable

_SLOWEST_BODY_BYTES_PER_S = 500
"""Less than a telephone line carries; so low that no real upload is taken for an attack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits:
    """What clients may take up.

    Attributes:
        head_timeout_s: in which a new connection must bring its first byte, and any head must be whole once
            it has begun.
        body_timeout_s: a body must grow by 500 bytes a second, taken over each such time.
        max_connections: open at a time; more are refused with 503.
    """

    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    max_connections: int = 10_000


class Stage(Enum):
    """What a connection is about."""

    new = auto()
    """Nothing has come."""
    idle = auto()
    """All that was asked is answered."""
    head = auto()
    """Part of a head has come."""
    body = auto()
    """Part of a body may have come."""
    answer = auto()
    """All that was asked has come, and is not answered yet."""
    over = auto()
    """It is going to be closed."""


class Watched(Protocol):
    """A connection, as far as its patience goes.

    Attributes:
        body_bytes: of all bodies that have come so far.
    """

    body_bytes: int

    @property
    def stage(self) -> Stage:
        """What it is about now."""
        ...

    @property
    def exchanges(self) -> tuple[int, int]:
        """How many requests have begun to come, and how many answers have gone."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether it is we who do not read."""
        ...

    def give_up(self, error: GatewayError) -> None:
        """Answer what is being read with an error, in its turn, and close."""
        ...

    def close(self) -> None:
        """Close without a word."""
        ...


class Patience:
    """The only timer of a connection: it looks now and then at what has changed.

    So whatever takes too long is noticed up to half of the shortest limit late, and requests cost nothing.
    """

    def __init__(
        self,
        connection: Watched,
        limits: ClientLimits,
        *,
        keep_alive_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._keep_alive_s = keep_alive_s
        self._interval_s = min(limits.head_timeout_s, limits.body_timeout_s, keep_alive_s) / 2
        self._loop = loop
        self._seen = (Stage.new, (0, 0))
        self._restart()
        self._timer = loop.call_later(self._interval_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def linger(self, seconds: float, abort: Callable[[], None]) -> None:
        """Do nothing any more but ``abort`` after some time."""
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, abort)

    def _restart(self) -> None:
        self._since = self._loop.time()
        self._body_bytes = self._connection.body_bytes

    def _look(self) -> None:
        connection = self._connection
        self._timer = self._loop.call_later(self._interval_s, self._look)
        stage = connection.stage
        seen = (stage, connection.exchanges)
        if seen != self._seen or connection.is_paused:
            self._seen = seen
            self._restart()
            return
        waited_s = self._loop.time() - self._since
        match stage:
            case Stage.new if waited_s >= self._limits.head_timeout_s:
                connection.close()
            case Stage.idle if waited_s >= self._keep_alive_s:
                connection.close()
            case Stage.head if waited_s >= self._limits.head_timeout_s:
                connection.give_up(Unreadable("the head of the request did not come in time", 408))
            case Stage.body if waited_s >= self._limits.body_timeout_s:
                self._judge_body(waited_s)

    def _judge_body(self, waited_s: float) -> None:
        grown_bytes = self._connection.body_bytes - self._body_bytes
        if grown_bytes < _SLOWEST_BODY_BYTES_PER_S * waited_s:
            self._connection.give_up(
                Unreadable(
                    f"the body comes too slowly: {plural(grown_bytes, 'byte')} in {waited_s:.0f} s, at least "
                    f"{_SLOWEST_BODY_BYTES_PER_S} bytes a second are expected",
                    408,
                )
            )
        self._restart()
