"""A service whose apis can be brought into the situations that /status explains."""

import time
from typing import Any

from uncork import Service, api
from uncork.adapters import Json


class Staged(Service):
    """One api for each situation."""

    @api(input=Json())
    def unasked(self, items: list[Any]) -> list[Any]:
        """Return the items."""
        return items

    @api(input=Json(), mb_max_latency=50)
    def slow(self, items: list[Any]) -> list[Any]:
        """Take longer than the goal."""
        time.sleep(0.1)
        return items

    @api(input=Json(), mb_max_latency=5000, mb_max_batch_size=4)
    def capped(self, items: list[Any]) -> list[Any]:
        """Take as long for four rows as for one."""
        time.sleep(0.1)
        return items

    @api(input=Json(), mb_max_latency=300)
    def loaded(self, items: list[Any]) -> list[Any]:
        """Take 30 ms a row, so that no batch helps."""
        time.sleep(0.03 * len(items))
        return items
