"""A model that sleeps for a time linear in the rows of its batch, and sums each row.

To see where the gateway's time per request goes, serve it, load it with ``wrk``, and sample the gateway:

    export PEER_INTERCEPT_MS=1 PEER_SLOPE_MS=0.02
    uncork serve benchmarks/services/sleep.py:Sleep --mb-max-batch-size 64
    wrk -t1 -c256 -d20 -s post.lua http://127.0.0.1:3000/predict
    py-spy record -p PID -d 6 -r 400 --native -f raw -o shares.txt

``post.lua`` sets ``wrk.method``, ``wrk.headers`` and ``wrk.body``, a row such as ``[5.1, 3.5, 1.4, 0.2]``.
"""

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
