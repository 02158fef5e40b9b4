"""The sleeping model with interactive requests and bulk: in classes, one queue, two APIs; and in groups."""

from typing import Any

from benchmarks.services.sleep import Sleep
from uncork import api
from uncork.adapters import Json

GOAL_MS = 100


class Classes(Sleep):
    """Serves each way at /NAME."""


def _serve(name: str, **options: Any) -> None:
    def handler(self: Sleep, rows: list[Any]) -> list[float]:
        """Return the sum of each row."""
        return self.predict([row["x"] if isinstance(row, dict) else row for row in rows])

    handler.__name__ = name
    setattr(Classes, name, api(input=Json(), mb_max_batch_size=256, **options)(handler))


_serve("classes", classes={"interactive": GOAL_MS, "bulk": None})
_serve("queue", mb_max_latency=GOAL_MS)
_serve("interactive", mb_max_latency=GOAL_MS)
_serve("bulk", mb_max_latency=10_000)
_serve("groups", group_by="g", mb_max_latency=1000)
_serve("groups_free", group_by="g", mb_max_latency=1000, policy="fixed:0")
