"""A service that only streams."""

from __future__ import annotations

from collections.abc import Iterator

from uncork import Service, api
from uncork.adapters import Json


class Streams(Service):
    """Counts."""

    @api(input=Json(), policy="none")
    def count(self, rows: list[list[int]]) -> Iterator[str]:
        """Yield each number of the row."""
        for number in rows[0]:
            yield f"{number} "
