"""Pad handler calls to allowed sizes, for models compiled for certain sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uncork_workers.definition.outputs.encoding import Array, Encoded


def padded_size(rows: int, allowed: Sequence[int] | None) -> int:
    """Return the smallest allowed size for ``rows`` rows; without allowed sizes, ``rows``."""
    return rows if allowed is None else allowed[bisect_left(allowed, rows)]


def pad(rows: Any, size: int) -> Any:
    """Repeat the last row until there are ``size`` rows."""
    missing = size - len(rows)
    if missing <= 0:
        return rows
    last = rows[len(rows) - 1 :]
    if isinstance(rows, np.ndarray):
        return np.concatenate([rows, np.repeat(last, missing, axis=0)])
    if hasattr(rows, "iloc"):
        return rows.take([*range(len(rows)), *[len(rows) - 1] * missing]).reset_index(drop=True)
    return [*rows, *[last[0]] * missing]


def without_padding(encoded: Encoded | Array, rows: int) -> Encoded | Array:
    """Return the results for the first rows."""
    if isinstance(encoded, Array):
        return encoded._replace(values=encoded.values[:rows])
    if len(encoded.rows) == rows:
        return encoded
    responses = {at: response for at, response in encoded.responses.items() if at < rows}
    return replace(encoded, rows=encoded.rows[:rows], responses=responses)
