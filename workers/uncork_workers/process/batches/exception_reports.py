"""Reports of exceptions in the code of a service, for operators."""

import sysconfig
from pathlib import Path
from traceback import walk_tb

from uncork_workers.wire.messages import ExceptionReport

_MOST_CHARACTERS = 500
_OURS = (str(Path(__file__).parents[1]), "<")
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def exception_report(error: BaseException, *, error_id: str = "", requests: int = 0) -> ExceptionReport:
    """Return a report of an exception that failed ``requests`` requests with 500."""
    return ExceptionReport(
        error=type(error).__name__,
        place=_encodable(_place(error)),
        message=_encodable(_message(error)),
        id=error_id,
        requests=requests,
    )


def _place(error: BaseException) -> str:
    """Return file and line of the innermost frame in the service's code; empty if there is none.

    For an installed service this is the innermost frame of any library.
    """
    lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    lines = [one for one in lines if not one[0].startswith(_OURS)]
    own = [one for one in lines if not one[0].startswith(_LIBRARIES)] or lines
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def _message(error: BaseException) -> str:
    try:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    except Exception:  # __str__ is code of the service too
        return ""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _encodable(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()
