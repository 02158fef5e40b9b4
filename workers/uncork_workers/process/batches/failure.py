"""An exception of a service's code, reported at once so that what it keeps alive can go."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uncork_workers.process.batches.exception_reports import (
    exception_report,
    free_variables,
    release,
    repr_of,
    traceback_text,
)
from uncork_workers.process.batches.out_of_memory import is_out_of_memory
from uncork_workers.wire.messages import ExceptionReport


class Failure(Exception):
    """Stands for the exception of a failed call, whose memory is free; never raised itself.

    Attributes:
        error: the exception.
        report: for operators.
        text_of_error: the exception as one line of a log.
        is_out_of_memory: whether the call needed more memory than there was.
        size: of the call.
    """

    def __init__(self, error: BaseException, handler: Callable[..., Any], *, size: float) -> None:
        super().__init__(error)
        self.size = size
        self.error = error
        self.text_of_error, self._traceback = repr_of(error), traceback_text(error)
        try:
            self.report = exception_report(error, handler)
            self.is_out_of_memory = is_out_of_memory(error)
            free_variables(error)
        except BaseException:  # the attributes of an exception can be code of the service too
            self.report, self.is_out_of_memory = ExceptionReport(type(error).__name__, "", ""), False

    def release(self) -> None:
        """Drop the traceback, which refers to the batch, once it is not needed any more."""
        with suppress(BaseException):  # as above
            release(self.error)

    def log(self, log: logging.Logger, message: str) -> None:
        """Log the exception with its traceback, whose frames have no variables any more."""
        if not log.isEnabledFor(logging.ERROR):
            return
        exc_info = (type(self.error), self.error, self.error.__traceback__)
        record = log.makeRecord(log.name, logging.ERROR, __file__, 0, message, (), exc_info)
        record.exc_text = self._traceback
        log.handle(record)
