"""The models that the servers behind a proxy know. Each has an API of its own: queue, estimate, counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from uncork_dispatcher import ApiRules, AsyncDispatcher
from uncork_gateway.telemetry.metrics import ApiTally, Metrics
from uncork_gateway.telemetry.recent import WINDOW_S

UNKNOWN = "(unknown)"
"""The API that requests for all other models share. Their batch keys keep the models apart."""

# Each adds about 120 lines to /metrics, and the event loop waits while they are written.
_MOST = 100
_IDLE_S = 3600.0


class KnownModels:
    """Bounds what clients can make a proxy remember: they may ask for any name.

    A model is known once a server has answered a request for it with 2xx, and forgotten an hour after its
    last request. At most 100 are known; a new one takes the place of the one that has been idle longest.

    Args:
        rules: makes the rules of the API for a name.
        dispatcher: queues the requests.
        metrics: counts them, by API.
        forget_api: drops all figures of an API, or returns False while it has requests.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        rules: Callable[[str], ApiRules],
        *,
        dispatcher: AsyncDispatcher[Any, Any],
        metrics: Metrics,
        forget_api: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._forget_api = forget_api
        self._clock = clock
        self._used: dict[str, float] = {}
        """When each known model was last asked for; the one that is idle longest comes first."""
        self._unknown_used = -math.inf
        dispatcher.set_api(rules(UNKNOWN))

    def use(self, model: str) -> str:
        """Return the API for a new request to a model."""
        if self._used.pop(model, None) is None:
            self._unknown_used = self._clock()
            return UNKNOWN
        self._used[model] = self._clock()
        return model

    def tally(self, model: str) -> ApiTally:
        """Return the counts to which the answers for a model are added."""
        return self._metrics.api(model if model in self._used else UNKNOWN)

    def add(self, model: str) -> None:
        """Know a model from now on, unless every known one has requests and there is no room."""
        if model in self._used:
            return
        self.expire()
        if len(self._used) < _MOST or any(self._forget(other) for other in list(self._used)):
            self._used[model] = self._clock()
            self._dispatcher.set_api(self._rules(model))

    def expire(self) -> None:
        """Forget the models that nobody has asked for in an hour. To be called before names are read."""
        now = self._clock()
        for model, used in list(self._used.items()):
            if now - used < _IDLE_S:
                break
            self._forget(model)

    def names(self) -> list[str]:
        """The known models in alphabetical order, then :data:`UNKNOWN` if it was used recently."""
        self.expire()
        is_recent = self._clock() - self._unknown_used < WINDOW_S
        return [*sorted(self._used), *[UNKNOWN] * is_recent]

    def _forget(self, model: str) -> bool:
        """Forget a model that has no requests; returns False if it has some."""
        if not self._forget_api(model):
            return False
        del self._used[model]
        return True
