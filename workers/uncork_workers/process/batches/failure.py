"""An exception of a service's code, reported at once so that what it keeps alive can go."""

import logging
from collections.abc import Callable
from typing import Any

from uncork_workers.process.batches.exception_reports import (
    exception_report,
    release,
    repr_of,
    traceback_text,
)
from uncork_workers.process.batches.out_of_memory import is_out_of_memory


class Failure(Exception):
    """Stands for the exception of a failed call, which is released; never raised itself.

    Attributes:
        report: for operators.
        text_of_error: the exception as one line of a log.
        is_out_of_memory: whether the call needed more memory than there was.
    """

    def __init__(self, error: BaseException, handler: Callable[..., Any]) -> None:
        super().__init__(error)
        self.report = exception_report(error, handler)
        self.text_of_error = repr_of(error)
        self.is_out_of_memory = is_out_of_memory(error)
        self._error = error
        self._traceback = traceback_text(error)
        release(error)

    def log(self, log: logging.Logger, message: str) -> None:
        """Log the exception with the traceback that it had."""
        if not log.isEnabledFor(logging.ERROR):
            return
        exc_info = (type(self._error), self._error, None)
        record = log.makeRecord(log.name, logging.ERROR, __file__, 0, message, (), exc_info)
        record.exc_text = self._traceback
        log.handle(record)
