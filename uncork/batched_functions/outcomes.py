"""What the callers of a batched function get: results, and exceptions that can be raised to them."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from uncork_dispatcher import DispatchError


class Failed(NamedTuple):
    """The exception that a call raises in place of a result."""

    error: Exception


Result = Any | Failed


def result_of(returned: Any) -> Result:
    """Return the result of a call; an exception that the function returned is raised to the caller."""
    return Failed(for_callers(returned)) if isinstance(returned, BaseException) else returned


def for_callers(error: BaseException) -> Exception:
    """Return an exception that a caller can be given: no cancellation."""
    if isinstance(error, Exception):
        return error
    what = "was cancelled from within" if isinstance(error, asyncio.CancelledError) else f"raised {error!r}"
    failed = DispatchError(f"the batch function {what}")
    failed.__cause__ = error
    return failed
