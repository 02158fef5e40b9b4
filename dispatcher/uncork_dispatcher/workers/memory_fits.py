"""The largest batches that fit into the memory of workers that have run out of it."""

from __future__ import annotations

import math


class MemoryFits:
    """By API and worker, the size of batches that fits; infinity where none was too large."""

    def __init__(self) -> None:
        self.by_api: dict[str, dict[int, float]] = {}
        """The size for each worker that has one, by API."""

    def limit(self, worker: int, api: str, fits: float) -> None:
        """Set the size of an API's batches that fits into a worker's memory; infinity ends the limit."""
        self._forget(worker, api)
        if fits < math.inf:
            self.by_api.setdefault(api, {})[worker] = fits

    def of(self, worker: int, api: str) -> float:
        """Return the size of an API's batches that fits into a worker's memory."""
        return self.by_api[api].get(worker, math.inf) if api in self.by_api else math.inf

    def least(self, api: str) -> float:
        return min(self.by_api[api].values()) if api in self.by_api else math.inf

    def forget(self, worker: int) -> None:
        for api in list(self.by_api):
            self._forget(worker, api)

    def _forget(self, worker: int, api: str) -> None:
        known = self.by_api.get(api)
        if known is not None:
            known.pop(worker, None)
            if not known:
                del self.by_api[api]
