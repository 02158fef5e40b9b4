"""A service with an API whose batches wait for a gate, and one whose batches do not."""

import os
from pathlib import Path

from uncork import Service, api
from uncork.adapters import Json


class Gated(Service):
    @api(input=Json(), mb_max_batch_size=1)
    def slow(self, rows: list[int]) -> list[int]:
        """Waits until someone writes to the pipe that ``GATE`` names."""
        Path(os.environ["GATE"]).read_text()
        return rows

    @api(input=Json(), workers=1)
    def fast(self, rows: list[int]) -> list[int]:
        return rows
