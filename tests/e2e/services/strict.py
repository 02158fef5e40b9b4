"""A service that refuses rows of numbers that it does not like."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from uncork import Service, api
from uncork.adapters import Json, NdArray

Row = Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=6)]], msgspec.Meta(min_length=2, max_length=2)]


class Strict(Service):
    """Throws dice."""

    @api(input=Json(type=Row))
    def throw(self, rows: list[list[int]]) -> list[int]:
        """Add up two dice."""
        return [sum(row) for row in rows]

    @api(input=NdArray(dtype="uint8", shape=(2,)))
    def pixel(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Give back the rows."""
        return rows
