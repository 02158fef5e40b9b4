"""Batches of a few sizes only, for models that are compiled for them: the last row again, until one fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uncork_workers.definition.outputs import Array, Encoded


def padded_size(rows: int, allowed: Sequence[int] | None) -> int:
    """The smallest of some rising sizes that ``rows`` rows fit into; so many themselves if none is given."""
    return rows if allowed is None else allowed[bisect_left(allowed, rows)]


def pad(rows: Any, size: int) -> Any:
    """Rows with the last of them repeated until there are ``size``."""
    missing = size - len(rows)
    if missing <= 0:
        return rows
    last = rows[len(rows) - 1 :]
    if isinstance(rows, np.ndarray):
        return np.concatenate([rows, np.repeat(last, missing, axis=0)])
    if hasattr(rows, "iloc"):
        return rows.take([*range(len(rows)), *[len(rows) - 1] * missing]).reset_index(drop=True)
    return [*rows, *[last[0]] * missing]


def without_surplus(encoded: Encoded | Array, rows: int) -> Encoded | Array:
    """What the handler said of the first rows."""
    if isinstance(encoded, Array):
        return encoded._replace(values=encoded.values[:rows])
    if len(encoded.rows) == rows:
        return encoded
    answers = {at: answer for at, answer in encoded.answers.items() if at < rows}
    return replace(encoded, rows=encoded.rows[:rows], answers=answers)
