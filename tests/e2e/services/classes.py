"""An API with two classes of requests."""

import time

from uncork import Service, api
from uncork.adapters import Json


class Classes(Service):
    """Takes 5 ms for each batch, and 0.2 ms for each row."""

    @api(input=Json(), classes={"interactive": 2_000, "bulk": None}, mb_max_batch_size=64, warmup=1)
    def predict(self, rows: list[int]) -> list[int]:
        time.sleep(0.005 + 0.0002 * len(rows))
        return rows
