"""The models behind a proxy. Each known model has an API of its own, with queue, estimate and counts."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uncork_dispatcher import ApiRules, AsyncDispatcher
from uncork_gateway.telemetry.metrics import ApiTally, Metrics
from uncork_gateway.telemetry.recent import WINDOW_S

log = logging.getLogger("uncork.gateway")

UNKNOWN = "(unknown)"
"""The API that requests for all other models share; their batch keys separate the models."""

_LONGEST_NAME = 256
# Each model adds about 120 lines to /metrics, and collecting them blocks the event loop.
_MOST = 100
_IDLE_S = 3600.0


def can_be_known(model: str) -> bool:
    """Return True if a model's name is fit for /metrics and for one line of a log."""
    return model.isprintable() and 0 < len(model) <= _LONGEST_NAME and model != UNKNOWN


class KnownModels:
    """The known models of a proxy, limited in number, because clients may request arbitrary names.

    A model is known once a server has responded 2xx to a request for it, and forgotten an hour after its last
    request. At most 100 are known; a new model replaces the model that has been idle longest.

    Args:
        rules: returns the rules of a model's API.
        forget_api: drops an API and all its data, or returns False while it has requests.
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
        """Time of the last request for each known model; the one that has been idle longest comes first."""
        self._limits: dict[str, int] = {}
        """Most rows in a call for models whose servers have refused more."""
        self._unknown_used = -math.inf
        dispatcher.set_api(rules(UNKNOWN))

    def change(self, rules: Callable[[str], ApiRules]) -> None:
        """Use these rules from now on; a learned limit stays if it is lower."""
        self._rules = rules
        for model in (UNKNOWN, *self._used):
            own = rules(model)
            rows = min(own.max_batch_rows, self._limits.get(model, own.max_batch_rows))
            self._dispatcher.set_api(replace(own, max_batch_rows=rows))

    def use(self, model: str) -> str:
        """Return the API for a new request for a model."""
        if self._used.pop(model, None) is None:
            self._unknown_used = self._clock()
            return UNKNOWN
        self._used[model] = self._clock()
        return model

    def tally(self, model: str) -> ApiTally:
        return self._metrics.api(model if model in self._used else UNKNOWN)

    def add(self, model: str) -> None:
        """Add a model, unless 100 others all have requests. The API of all other models is none."""
        if model in self._used or model == UNKNOWN:
            return
        self.expire()
        if len(self._used) < _MOST or any(self._forget(other) for other in list(self._used)):
            self._used[model] = self._clock()
            self._dispatcher.set_api(self._rules(model))

    def limit(self, model: str, rows: int) -> None:
        """Limit calls for a model to ``rows`` rows, until the model is forgotten.

        A request with more rows runs alone.
        """
        rules = self._rules(model)
        before = min(rules.max_batch_rows, self._limits.get(model, rules.max_batch_rows))
        if model not in self._used or not 0 < rows < before:
            return
        self._limits[model] = rows
        self._dispatcher.set_api(replace(rules, max_batch_rows=rows))
        log.info("%s: the server accepts at most %d rows per call; calls will have no more", model, rows)

    def expire(self) -> None:
        """Forget the models without a request in the last hour. Call this before reading names."""
        now = self._clock()
        for model, used in list(self._used.items()):
            if now - used < _IDLE_S:
                break
            self._forget(model)

    def names(self) -> list[str]:
        """Return the known models in alphabetical order, then :data:`UNKNOWN` if recently used."""
        self.expire()
        is_recent = self._clock() - self._unknown_used < WINDOW_S
        return [*sorted(self._used), *[UNKNOWN] * is_recent]

    def _forget(self, model: str) -> bool:
        """Forget a model; return False if it still has requests."""
        if not self._forget_api(model):
            return False
        del self._used[model]
        self._limits.pop(model, None)
        return True
