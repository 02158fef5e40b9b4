"""APIs that group requests by a field; they hold, so that callers meet. Others have classes, or pad."""

import time
from collections.abc import Sequence
from typing import Any

import uncork
from uncork import Service, api, context
from uncork.adapters import DataFrame, Json, Text


class Groups(Service):
    """Says for each row what its group is; fails if a call has rows of several."""

    @api(input=Json(), group_by="language", policy="fixed:100", mb_max_latency=10_000)
    def predict(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        group = context().group
        for row in rows:
            assert row["language"] == group
        return [{"n": row["n"], "group": group} for row in rows]

    @api(input=DataFrame(), group_by="language", policy="fixed:100", mb_max_latency=10_000)
    def table(self, rows: Any) -> Any:
        assert set(rows["language"]) == {context().group}
        return rows[["n", "language"]]


class Classes(Service):
    """Takes 5 ms for each batch, and 0.2 ms for each row."""

    @api(input=Json(), classes={"interactive": 2_000, "bulk": None}, mb_max_batch_size=64, warmup=1)
    def predict(self, rows: list[int]) -> list[int]:
        time.sleep(0.005 + 0.0002 * len(rows))
        return rows


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
