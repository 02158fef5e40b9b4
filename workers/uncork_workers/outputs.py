"""From what a handler returned to one JSON text per row."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


class WrongResult(Exception):
    """The handler returned something that cannot be dealt out to its callers."""


def encode_rows(results: object, *, expected: int) -> list[bytes]:
    """One JSON text for each of ``expected`` rows. NaN and infinity, which JSON lacks, become null.

    Raises:
        WrongResult: if it is not a list or array of ``expected`` results, or one is not JSON.
    """
    if isinstance(results, np.ndarray) and results.ndim > 0:
        results = results.tolist()
    if not isinstance(results, list | tuple):
        raise WrongResult(
            f"the handler must return an array or a list with one result per row, "
            f"it returned {type(results).__name__}"
        )
    if len(results) != expected:
        raise WrongResult(f"the handler returned {len(results)} results for {expected} rows")
    try:
        return _encoder.encode_lines(results).split(b"\n")[:expected]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongResult(f"a result cannot be written as JSON: {error}") from error


def _plain(value: object) -> Any:
    """NumPy's values inside lists and dicts."""
    if isinstance(value, np.floating):
        return float(value)  # tolist() leaves a long double what it is
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
