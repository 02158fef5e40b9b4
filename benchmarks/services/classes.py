"""The sleeping model with interactive requests and bulk: with classes, in one queue, and as two APIs."""

from typing import Any

from benchmarks.services.sleep import Sleep
from uncork import api
from uncork.adapters import Json

GOAL_MS = 100
_LIMIT_ROWS = 256


class Classes(Sleep):
    """Serves each way at a route of its own. The APIs with groups show what groups cost."""

    @api(input=Json(), classes={"interactive": GOAL_MS, "bulk": None}, mb_max_batch_size=_LIMIT_ROWS)
    def classes(self, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row; interactive requests have a goal."""
        return self.predict(rows)

    @api(input=Json(), mb_max_latency=GOAL_MS, mb_max_batch_size=_LIMIT_ROWS)
    def queue(self, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row; all requests have the goal."""
        return self.predict(rows)

    @api(input=Json(), mb_max_latency=GOAL_MS, mb_max_batch_size=_LIMIT_ROWS)
    def interactive(self, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row."""
        return self.predict(rows)

    @api(input=Json(), mb_max_latency=10_000, mb_max_batch_size=_LIMIT_ROWS)
    def bulk(self, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row; the goal is so long that nothing is refused."""
        return self.predict(rows)

    @api(input=Json(), group_by="g", mb_max_latency=1000)
    def groups(self, rows: list[dict[str, Any]]) -> list[float]:
        """Return the sum of each row, with rows of the same group only."""
        return self.predict([row["x"] for row in rows])

    @api(input=Json(), group_by="g", mb_max_latency=1000, policy="fixed:0", route="/groups-free")
    def groups_free(self, rows: list[dict[str, Any]]) -> list[float]:
        """Return the sum of each row, released when a worker is free."""
        return self.predict([row["x"] for row in rows])
