"""A service that only streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from uncork import Service, api
from uncork.adapters import Json, NdArray


class Streams(Service):
    """Counts."""

    @api(input=Json(), policy="none")
    def count(self, rows: list[list[int]]) -> Iterator[str]:
        """Yield each number of the row."""
        for number in rows[0]:
            yield f"{number} "


class Pieces(Service):
    """Answers each row in pieces."""

    @api(input=NdArray(dtype="int64", shape=(3,)), policy="none")
    def numbers(self, rows: Any) -> Iterator[str]:
        """Yield each number of the row."""
        for number in rows[0]:
            yield f"{number} "
