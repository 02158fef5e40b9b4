"""Error messages for handlers whose results are missing, too few or too many, or cannot be written."""

import inspect
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.plural import plural

_WRITABLE = (
    "numbers, text, True, False, None, bytes, dates, arrays, and lists and dicts (with text as keys) of these"
)


def no_results(returned: object, expected: int) -> WrongResult:
    """Return the error for a value that is not a list of results."""
    name = returned.dtype.name if isinstance(returned, np.ndarray) else type(returned).__name__
    what = "None" if returned is None else f"a single {name}" if _is_single(returned) else name
    return WrongResult(
        f"the handler must return an array, a table or a list with one result per row, got {what}"
        f"{_advice_on_return(returned, expected)}"
    )


def check_count(got: int, expected: int) -> None:
    """Raise WrongResult if there are too few or too many results."""
    if got == expected:
        return
    if got == 1 < expected:
        advice = "; it receives all rows of a batch and must return one result per row"
    elif expected == 1 < got:
        advice = "; to return several values for one row, nest them in a list: [results]"
    else:
        advice = ""
    raise WrongResult(f"the handler returned {plural(got, 'result')} for {plural(expected, 'row')}{advice}")


def not_json(value: object) -> TypeError:
    """Return the error for a value inside a result that JSON cannot represent."""
    advice = _advice_on_value(value) or f"; use {_WRITABLE}"
    return TypeError(f"{type(value).__name__} is not supported{advice}")


def wrong_key(key: object) -> TypeError:
    """Return the error for a key of a dict that JSON cannot have."""
    kind, as_text = type(key).__name__, str(key)
    return TypeError(
        f"the key {key!r:.80} is a {kind}; use text or integers as keys, such as {as_text!r:.80}"
    )


def _advice_on_return(returned: object, expected: int) -> str:
    if returned is None:
        return "; is a return statement missing?"
    if isinstance(returned, Rejected | Response):
        return "; put it in a list, at the position of its row"
    if advice := _advice_on_value(returned):
        return advice
    if isinstance(returned, Iterable) and not isinstance(returned, Sized):
        return "; convert it with list(...)"
    if isinstance(returned, Iterable) and not _is_single(returned):
        return "; convert it to a list, in the order of the rows"
    return f"; it was called with {plural(expected, 'row')} and must return one result for each"


def _advice_on_value(value: Any) -> str:
    if inspect.isawaitable(value):
        return "; write async def, and await the call"
    # By attribute, as these libraries may not be installed.
    for method in ("to_pandas", "toarray"):  # tables, and sparse matrices
        if hasattr(value, method):
            return f"; convert it with .{method}()"
    return ""


def _is_single(value: object) -> bool:
    return isinstance(value, int | float | complex | str | bytes | np.generic | np.ndarray)
