"""Encoding of results as JSON, one text per row."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_workers.definition.outputs.arrays import as_numpy
from uncork_workers.definition.outputs.host import as_host_array
from uncork_workers.definition.outputs.responses import WrongResult, not_json, wrong_key
from uncork_workers.wire import frames
from uncork_workers.wire.json_faults import TOO_DEEP
from uncork_workers.wire.tensors import BFLOAT16, widened

# Units of NumPy times that tolist() turns into integers, as Python's times end at microseconds.
_TOO_FINE = ("ns]", "ps]", "fs]", "as]")
UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError)
_MOST_LEVELS = 20


def encode_json(results: Sequence[Any], *, places: Sequence[int] | None = None) -> list[bytes]:
    """Return one JSON text per result. NaN and infinity, which JSON lacks, become null.

    Args:
        places: the positions of the results in the handler's list, for error messages; None if these are all.

    Raises:
        WrongResult: if a result cannot be written; the message has its position and the path inside it.
    """
    try:
        lines = _encoder.encode_lines(results).split(b"\n")[:-1]
        if len(lines) > len(results):  # a msgspec.Raw is written as it is, with its line breaks
            lines = [_line_of(result) for result in results]
        return lines
    except UNWRITABLE as error:
        at, path, reason = _locate_error(results, error)
        name = "a result" if len(results) == 1 else f"result {at if places is None else places[at]}"
        where = f" at {path}" if path else ""
        why = TOO_DEEP if isinstance(reason, RecursionError) else reason
        raise WrongResult(f"{name}{where} cannot be written as JSON: {why}") from error


def _locate_error(results: Sequence[Any], error: Exception) -> tuple[int, str, Exception]:
    """Return the position of the first invalid result, the path to the invalid value in it, and the error."""
    at, path, value = 0, "", results
    for level in range(_MOST_LEVELS):
        found = next(
            (found for key, inner in _items(value) if (found := _error_at(key, inner)) is not None), None
        )
        if found is None:
            break
        key, value, error = found
        at, path = (key, "") if level == 0 else (at, f"{path}[{key!r}]")
    return at, path, _error_of_key(value) or error


def _error_of_key(value: Any) -> Exception | None:
    """Return the error for the first key of a dict that JSON cannot have."""
    for key in value if isinstance(value, dict) else ():
        if _error_at(key, {key: None}) is not None:
            return wrong_key(key)
    return None


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _error_at(key: Any, value: Any) -> tuple[Any, Any, Exception] | None:
    try:
        _line_of(value)
    except UNWRITABLE as error:
        return key, value, error
    return None


def _line_of(result: Any) -> bytes:
    text = _encoder.encode(result)
    return msgspec.json.format(text, indent=-1) if b"\n" in text else text


def values_of(array: np.ndarray[Any, Any] | np.generic) -> Any:
    """Convert NumPy values to Python's, truncating times to microseconds."""
    dtype = array.dtype
    if dtype == BFLOAT16:
        array = widened(array["BF16"])  # type: ignore[index]
    if dtype.kind in "mM" and dtype.name.endswith(_TOO_FINE):
        array = array.astype(f"{dtype.kind}8[us]")
    return array.tolist()


def plain(value: object) -> Any:
    """Convert a value of NumPy, pandas or a library with arrays of its own inside a result."""
    if isinstance(value, np.floating):
        return float(value)  # tolist() does not convert a long double
    if isinstance(value, np.ndarray | np.generic):
        return values_of(value)
    if isinstance(value, str | int | float) and type(value) is not bool:  # of a subclass; a bool is a key
        return frames.plain(value)
    if isinstance(value, msgspec.Raw):  # the writer of JSON does not ask
        return msgspec.json.decode(value)
    if type(value).__module__.partition(".")[0] == "pandas":
        return _plain_of_pandas(value)
    array = as_host_array(value)
    if array is not None:
        return values_of(as_numpy(array))
    raise not_json(value)


def _plain_of_pandas(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_dict"):
        return value.to_dict("records")
    if str(value) in ("<NA>", "NaT"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encoder = msgspec.json.Encoder(enc_hook=plain)
