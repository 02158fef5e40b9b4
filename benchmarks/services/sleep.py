"""A model that sleeps for a time linear in the rows of its batch, and sums each row."""

import os
import time

from uncork import Service, api
from uncork.adapters import Json


class Sleep(Service):
    """Takes PEER_INTERCEPT_MS + PEER_SLOPE_MS * rows milliseconds for a batch."""

    def setup(self) -> None:
        self.intercept_ms = float(os.environ["PEER_INTERCEPT_MS"])
        self.slope_ms = float(os.environ["PEER_SLOPE_MS"])

    @api(input=Json())
    def predict(self, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row."""
        time.sleep((self.intercept_ms + self.slope_ms * len(rows)) / 1000)
        return [float(sum(row)) for row in rows]
