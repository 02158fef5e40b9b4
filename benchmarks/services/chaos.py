"""A model that answers with a digest of each row, and has rows that make it raise or die."""

import os
import signal
import time

from benchmarks.chaos.questions import Row, answer
from uncork import Service, api
from uncork.adapters import Json


class Chaos(Service):
    """Takes CHAOS_FIXED_MS + CHAOS_ROW_MS * rows milliseconds for a batch."""

    def setup(self) -> None:
        """Read the two numbers; once in every worker."""
        self.fixed_ms = float(os.environ["CHAOS_FIXED_MS"])
        self.row_ms = float(os.environ["CHAOS_ROW_MS"])

    @api(input=Json(type=Row), timeout=2)
    def predict(self, rows: list[Row]) -> list[str]:
        """Return the digest of each row, unless a row wants something else."""
        acts = {row.act for row in rows}
        if "die" in acts:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raise" in acts:
            raise RuntimeError("a poisoned row")
        time.sleep((self.fixed_ms + self.row_ms * len(rows)) / 1000)
        if "raise late" in acts:
            raise RuntimeError("a row that is poison to the last step")
        return [answer(row) for row in rows]
