"""Counts of the exceptions that handlers raise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uncork_gateway.pages.status.document import Failure
from uncork_workers.wire.frames import Raised

# Kinds kept for each API; the least recently raised one is dropped.
_MOST_KINDS = 16


@dataclass(slots=True)
class _Kind:
    """The exceptions of one class at one place."""

    latest: Raised
    requests: int
    first: float
    last: float


class Failures:
    """Counts exceptions by class and place, and keeps the last of each.

    Args:
        show_messages: whether to include the messages of exceptions, which may quote requests.
        clock: seconds since 1970.
    """

    def __init__(self, *, show_messages: bool, clock: Callable[[], float] = time.time) -> None:
        self._show_messages = show_messages
        self._clock = clock
        self._kinds: dict[str, dict[tuple[str, str], _Kind]] = {}

    def note(self, api: str, raised: Sequence[Raised]) -> None:
        """Count the exceptions of a batch, except those for which no request got 500."""
        for one in raised:
            if one.requests:
                self._count(self._kinds.setdefault(api, {}), one, self._clock())

    def _count(self, kinds: dict[tuple[str, str], _Kind], raised: Raised, now: float) -> None:
        key = (raised.error, raised.place)
        kind = kinds.pop(key, None) or _Kind(raised, 0, now, now)
        kind.latest, kind.last = raised, now
        kind.requests += raised.requests
        kinds[key] = kind  # at the end: the most recent
        if len(kinds) > _MOST_KINDS:
            del kinds[next(iter(kinds))]

    def last(self, api: str) -> Failure | None:
        """Return the last exception that the handler of an API raised; None if it raised none."""
        kinds = self._kinds.get(api)
        if not kinds:
            return None
        kind = next(reversed(kinds.values()))
        return Failure(
            error=kind.latest.error,
            place=kind.latest.place,
            message=kind.latest.message if self._show_messages else None,
            error_id=kind.latest.id,
            requests=kind.requests,
            first=kind.first,
            last=kind.last,
        )
