"""Exceptions in the code of a service: their reports, whether memory was short, and what they keep alive."""

import dis
import inspect
import logging
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.definition.checks import code_of, describe_function
from uncork_workers.wire.frames import encodable
from uncork_workers.wire.messages import ExceptionReport, RowPath

_MOST_CHARACTERS = 500
# The most characters of a text in the reason for a 400.
_REASON_CHARACTERS = 2000
# Logs keep this many characters of the beginning and of the end of a traceback: it may quote a whole request.
_TRACEBACK_CHARACTERS = 8000
_OURS = (f"{Path(__file__).parents[2]}{os.sep}", "<")
_CAN_WAIT = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_YIELD = dis.opmap["YIELD_VALUE"]
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
# Classes of torch and TensorFlow, known by name so that neither is imported.
_OUT_OF_MEMORY = ("OutOfMemoryError", "ResourceExhaustedError")
# The texts of these libraries, which also raise RuntimeError. Other exceptions may quote what a client sent,
# and a client must not be able to shrink the batches of others.
_MEMORY_OF = ("torch", "onnxruntime", "jax", "jaxlib", "tensorflow", "tensorrt", "cupy", "cupy_backends")
_SAY_SO = (
    "out of memory",
    "ALLOC_FAILED",
    "can't allocate memory",
    "Failed to allocate memory",
    "is smaller than requested bytes",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating",
    "std::bad_alloc",
)
_MOST_CAUSES = 10


class FailedCall:
    def __init__(self, error: BaseException, *, rows: int, size: float) -> None:
        self.error = error
        self.rows = rows
        self.size = size
        self.is_out_of_memory = False
        with suppress(BaseException):  # the attributes of an exception can be code of the service too
            self.is_out_of_memory = is_out_of_memory(error)

    def free(self) -> None:
        with suppress(BaseException):  # as above
            free_variables(self.error)


class Failure(FailedCall):
    """A failed call of a handler, reported at once so that what it keeps alive can go.

    Attributes:
        report: for operators.
        text_of_error: the exception as one line of a log.
    """

    def __init__(self, error: BaseException, handler: Callable[..., Any], *, rows: int, size: float) -> None:
        super().__init__(error, rows=rows, size=size)
        self.text_of_error, self._traceback = repr_of(error), traceback_text(error)
        self.report = ExceptionReport(type(error).__name__, "", "")
        with suppress(BaseException):  # as above
            self.report = exception_report(error, handler)
        self.free()

    def release(self) -> None:
        """Drop the traceback, which refers to the batch, once it is not needed any more."""
        release(self.error)

    def log(self, log: logging.Logger, message: str) -> None:
        """Log the exception with its traceback, whose frames have no variables any more."""
        exc_info = (type(self.error), self.error, self.error.__traceback__)
        record = log.makeRecord(log.name, logging.ERROR, __file__, 0, message, (), exc_info)
        record.exc_text = self._traceback
        if log.isEnabledFor(logging.ERROR):
            log.handle(record)
        else:
            log.filter(record)  # uncork.testing finds exceptions by a filter, also without logs


def exception_report(error: BaseException, handler: Callable[..., Any] | None = None) -> ExceptionReport:
    return ExceptionReport(
        error=type(error).__name__,
        place=encodable(_place(_innermost(error), handler)),
        message=encodable(_message(error)),
    )


def name_handler(error: BaseException, methods: Sequence[Callable[..., Any]]) -> None:
    """Add a note that names the last method to an exception that has none in its traceback: about results."""
    codes = [code_of(method) for method in methods]
    if codes[-1] is None or all(frame.f_code not in codes for frame, _ in walk_tb(error.__traceback__)):
        error.add_note(f"handler: {describe_function(methods[-1])}")


def traceback_text(error: BaseException) -> str:
    """Return the traceback as logs show it, without the middle of a long one.

    It is only the exception if code of the service fails meanwhile.
    """
    try:
        text = "".join(traceback.format_exception(error)).rstrip("\n")
    except BaseException:  # a __str__ of the service
        return type(error).__name__
    left_out = len(text) - 2 * _TRACEBACK_CHARACTERS
    if left_out <= 0:
        return text
    start, end = text[:_TRACEBACK_CHARACTERS], text[-_TRACEBACK_CHARACTERS:]
    return f"{start}\n[... {left_out} characters ...]\n{end}"


def free_variables(error: BaseException) -> None:
    """Drop the variables of the frames in the tracebacks of an exception, except of frames that go on.

    They keep alive what the failed call has allocated, such as memory of a GPU.
    """
    for one in with_causes(error):
        for frame, _ in walk_tb(one.__traceback__):
            if not _is_suspended(frame):
                with suppress(RuntimeError):  # it runs
                    frame.clear()
            # Up to Python 3.12, this is a copy that hints may have made; reading it again updates it.
            _ = frame.f_locals


def _is_suspended(frame: FrameType) -> bool:
    """Return True if a frame waits in an ``await`` or ``yield``; up to Python 3.12, clearing would end it.

    Several handlers that run at once may raise the same exception object, and one may have caught it.
    """
    code, at = frame.f_code, frame.f_lasti
    return bool(code.co_flags & _CAN_WAIT) and at >= 0 and code.co_code[at] == _YIELD


def release(error: BaseException) -> None:
    """Drop the tracebacks of an exception that has been reported: their frames keep the whole batch alive."""
    with suppress(BaseException):  # the attributes of an exception can be code of the service too
        for one in with_causes(error):
            one.__traceback__ = None


def _place(error: BaseException, handler: Callable[..., Any] | None) -> str:
    """Return file and line of the innermost frame in the service's code.

    For an installed service this is the innermost frame of any library. If the handler had returned, it is
    the definition of the handler.
    """
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    frames = [one for one in frames if not one[0].co_filename.startswith(_OURS)]
    own = [one for one in frames if not one[0].co_filename.startswith(_LIBRARIES)]
    code = None if handler is None else code_of(handler)
    if not own and (code is None or any(one[0] is code for one in frames)):
        own = frames
    if not own and code is not None:
        own = [(code, code.co_firstlineno)]
    return f"{Path(own[-1][0].co_filename).name}:{own[-1][1]}" if own else ""


def _message(error: BaseException) -> str:
    """Return the message and the notes of an exception; of a group, also the first exception in it."""
    inner = _innermost(error)
    try:
        lines = [str(error), *getattr(error, "__notes__", ())]
        if inner is not error:
            lines.insert(1, f"{type(inner).__name__}: {inner}")
        text = "\n".join(lines)
    except BaseException:  # __str__ is code of the service too
        return ""
    return shortened(text)


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return at most so many characters of a text, with an ellipsis for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def reason_of(error: InvalidInput) -> tuple[str, list[str | RowPath]]:
    """Return the reason for a 400, and its pieces if it has paths that are not too long for the reply.

    Long texts are cut, because they may quote a whole request.
    """
    if not any(isinstance(one, RowPath) for one in error.args):
        return encodable(shortened(str(error), _REASON_CHARACTERS)), []
    pieces = [
        one if isinstance(one, RowPath) else shortened(str(one), _REASON_CHARACTERS) for one in error.args
    ]
    text = encodable("".join(map(str, pieces)))
    if any(len(str(one)) > _REASON_CHARACTERS for one in pieces):  # a path has keys of the client
        return shortened(text, 2 * _REASON_CHARACTERS), []
    return text, pieces


def repr_of(error: BaseException) -> str:
    """Return an exception as short text; only its class if its ``__repr__`` raises."""
    try:
        return shortened(repr(error))
    except BaseException:  # code of the service too
        return type(error).__name__


def _innermost(error: BaseException) -> BaseException:
    """Return the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, the exceptions of a group, and the causes and contexts of each."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    yield from found.values()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or one of those that led to it, says that memory was short."""
    return any(_says_so(one) for one in islice(with_causes(error), _MOST_CAUSES))


def _says_so(error: BaseException) -> bool:
    kind = type(error)
    if isinstance(error, MemoryError) or any(base.__name__ in _OUT_OF_MEMORY for base in kind.__mro__):
        return True
    if kind is not RuntimeError and str(kind.__module__).partition(".")[0] not in _MEMORY_OF:
        return False
    try:
        text = str(error)
    except BaseException:  # code of the library or of the service
        return False
    return any(said in text for said in _SAY_SO)
