"""A service that streams, with an input whose shape clients can learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from uncork import Service, api
from uncork.adapters import NdArray


class Pieces(Service):
    """Answers each row in pieces."""

    @api(input=NdArray(dtype="int64", shape=(3,)), policy="none")
    def numbers(self, rows: Any) -> Iterator[str]:
        """Yield each number of the row."""
        for number in rows[0]:
            yield f"{number} "
