"""A model that returns a digest of each row; some rows make it raise or die."""

import os
import signal
import time

from benchmarks.chaos.questions import Row, right_answer
from uncork import Service, api
from uncork.adapters import Json


class Chaos(Service):
    """Takes CHAOS_FIXED_MS + CHAOS_ROW_MS * rows milliseconds for a batch."""

    def setup(self) -> None:
        self.fixed_ms = float(os.environ["CHAOS_FIXED_MS"])
        self.row_ms = float(os.environ["CHAOS_ROW_MS"])

    @api(input=Json(type=Row), timeout=2)
    def predict(self, rows: list[Row]) -> list[str]:
        """Return the digest of each row, or act as a row demands."""
        acts = {row.act for row in rows}
        if "die" in acts:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raise" in acts:
            raise RuntimeError("a poisoned row")
        time.sleep((self.fixed_ms + self.row_ms * len(rows)) / 1000)
        return [right_answer(row) for row in rows]
