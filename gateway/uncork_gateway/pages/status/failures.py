"""Counts the exceptions that handlers raise."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from uncork_gateway.pages.status.document import Failure
from uncork_workers.wire.messages import ExceptionReport

# Kinds kept for each API; the least recently raised one is dropped.
_MOST_KINDS = 16


class Failures:
    """Counts exceptions by class and place, and keeps the latest of each.

    Args:
        show_messages: True to include exception messages, which may quote requests.
        clock: returns seconds since 1970.
    """

    def __init__(self, *, show_messages: bool, clock: Callable[[], float] = time.time) -> None:
        self._show_messages = show_messages
        self._clock = clock
        self._kinds: defaultdict[str, dict[tuple[str, str], Failure]] = defaultdict(dict)

    def note(self, api: str, raised: Sequence[ExceptionReport]) -> None:
        """Count the exceptions of a batch, except those that caused no 500."""
        for one in raised:
            if one.requests:
                self._count(self._kinds[api], one, self._clock())

    def _count(self, kinds: dict[tuple[str, str], Failure], raised: ExceptionReport, now: float) -> None:
        key = (raised.error, raised.place)
        before = kinds.pop(key, None)
        # Added at the end, as the most recent.
        kinds[key] = Failure(
            error=raised.error,
            place=raised.place,
            message=raised.message if self._show_messages else None,
            error_id=raised.id,
            requests=raised.requests + (before.requests if before else 0),
            first=before.first if before else now,
            last=now,
        )
        if len(kinds) > _MOST_KINDS:
            del kinds[next(iter(kinds))]

    def last(self, api: str) -> Failure | None:
        """Return the latest exception of an API's handler; None if it has raised none."""
        return next(reversed(self._kinds[api].values()), None)
