"""A service whose worker exits when it gets a certain value."""

import os
import time

import uncork
from uncork.adapters import Json


class Fragile(uncork.Service):
    """Takes a while to start."""

    def setup(self) -> None:
        """Take a second."""
        time.sleep(1.0)

    @uncork.api(input=Json(), mb_max_latency=10_000)
    def echo(self, rows: list[str]) -> list[str]:
        """Return the rows, or exit."""
        if "kill" in rows:
            os._exit(1)
        return rows
