"""Results as one JSON text per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_workers.outputs.answers import WrongResult

# NumPy makes integers of times that are finer than Python's.
_TOO_FINE = ("ns]", "ps]", "fs]", "as]")


def encode_json(results: Sequence[Any]) -> list[bytes]:
    """One JSON text for each result. NaN and infinity, which JSON lacks, become null.

    Raises:
        WrongResult: if one is not JSON.
    """
    try:
        return _encoder.encode_lines(results).split(b"\n")[: len(results)]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WrongResult(f"a result cannot be written as JSON: {error}") from error


def values_of(array: np.ndarray[Any, Any] | np.generic) -> Any:
    """NumPy's values as Python's; times are cut to microseconds."""
    dtype = array.dtype
    if dtype.kind in "mM" and dtype.name.endswith(_TOO_FINE):
        array = array.astype(f"{dtype.kind}8[us]")
    return array.tolist()


def plain(value: object) -> Any:
    """NumPy's and pandas' values inside lists and dicts."""
    if isinstance(value, np.floating):
        return float(value)  # tolist() leaves a long double what it is
    if isinstance(value, np.ndarray | np.generic):
        return values_of(value)
    if type(value).__module__.partition(".")[0] == "pandas":
        return _plain_of_pandas(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _plain_of_pandas(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_dict"):
        return value.to_dict("records")
    if str(value) in ("<NA>", "NaT"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encoder = msgspec.json.Encoder(enc_hook=plain)
