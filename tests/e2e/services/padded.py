"""A service whose model pads each batch to its longest row."""

import time
from collections.abc import Sequence

import uncork
from uncork import Service, api
from uncork.adapters import Text


class Padded(Service):
    """Adds up the bytes of texts, in an array that is padded to the longest."""

    @api(input=Text(), cost="bytes", mb_max_batch_size=1_000_000, mb_max_latency=30_000)
    def with_cost(self, texts: Sequence[str]) -> list[dict[str, object]]:
        """Return the sum of each text, its cost, and the lengths in its batch."""
        return self._sums(texts)

    @api(input=Text(), mb_max_latency=30_000)
    def without_cost(self, texts: Sequence[str]) -> list[dict[str, object]]:
        """Do the same for an API that defines no cost."""
        return self._sums(texts)

    def _sums(self, texts: Sequence[str]) -> list[dict[str, object]]:
        values, mask = uncork.pad([list(text.encode()) for text in texts])
        time.sleep(0.001 + 1e-6 * values.size)
        lengths = mask.sum(axis=1)
        among = [int(lengths.min()), int(lengths.max())]
        costs = uncork.context().costs or [None] * len(texts)
        return [
            {"sum": int(row.sum()), "cost": cost, "among": among}
            for row, cost in zip(values, costs, strict=True)
        ]
