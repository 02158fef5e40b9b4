"""Hints for service authors, attached to exceptions as notes.

Tracebacks in the log and in tests show the notes; clients never see them.
"""

import ast
import asyncio
import inspect
import linecache
import logging
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

from uncork_workers.definition import adapters
from uncork_workers.definition.checks import message_of
from uncork_workers.definition.service import Service, api
from uncork_workers.plural import plural

log = logging.getLogger("uncork.worker")

_LONG_S = 0.1
# Modules whose packages have another name.
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_BY_NAME = re.compile(r"(\w+)\.__init__\(\) takes 1 positional argument")
_UNKNOWN_ARGUMENT = re.compile(r"unexpected keyword argument '(\w+)'")


@contextmanager
def adding_hints(service: Service, rows: Any = None) -> Iterator[None]:
    """Add a hint to an exception that leaves the ``with`` block, as :func:`add_hint`."""
    try:
        yield
    except BaseException as error:
        add_hint(error, service, rows)
        raise


def add_hint(error: BaseException, service: Service, rows: Any) -> None:
    """Add a hint to an exception, if there is one; ``rows`` are the handler's argument, if it was called."""
    try:
        _add_hint(error, service, rows)
    except Exception as fault:  # code of the service too, such as __str__ of the error or __getattr__
        log.debug("no hint for %s", type(error).__name__, exc_info=fault)


def _add_hint(error: BaseException, service: Service, rows: Any) -> None:
    hint = (
        _hint_on_attribute(error, service)
        or hint_on_import(error)
        or _hint_on_raise(error)
        or _hint_on_rows(error, rows)
    )
    note = f"hint: {hint}"
    # A service may raise the same exception object again.
    if hint and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def hint_on_import(error: BaseException) -> str:
    """Return a hint for an error at import or in a definition; empty if there is none."""
    text = message_of(error)
    match error:
        case ModuleNotFoundError(name=str(name)):
            module = name.partition(".")[0]
            package = _PACKAGES.get(module, module)
            return (
                f"install it for the Python that runs the workers: {sys.executable} -m pip install {package}"
            )
        case TypeError() if text.startswith("api() "):
            return _hint_on_api(text)
        case TypeError() if (found := _BY_NAME.match(text)) and found[1] in adapters.__all__:
            names = inspect.signature(getattr(adapters, found[1])).parameters
            return f"pass its arguments by keyword: {found[1]}({', '.join(f'{name}=...' for name in names)})"
        case _:
            return ""


def _hint_on_api(text: str) -> str:
    found = _UNKNOWN_ARGUMENT.search(text)
    near = get_close_matches(found[1], inspect.signature(api).parameters, n=1) if found else []
    if near:
        return f"did you mean {near[0]}?"
    return "write @api(input=Json()), or another adapter, above the method; pass all arguments by keyword"


def _hint_on_attribute(error: BaseException, service: Service) -> str:
    if not isinstance(error, AttributeError) or error.obj is not service or error.name is None:
        return ""
    name = error.name
    attributes = sorted(vars(service).keys() - {"worker_index"})
    if near := get_close_matches(name, attributes, n=1):
        return f"self.{name} is not set; did you mean self.{near[0]}?"
    has_setup = type(service).setup is not Service.setup
    if not has_setup and (other := _almost_setup(type(service))):
        return f"self.{name} is not set: {other}() is never called; rename it to setup"
    if has_setup:
        listed = ", ".join(f"self.{attribute}" for attribute in attributes)
        what = f"available attributes: {listed}" if listed else "self has no attributes"
        return f"setup() does not set self.{name}; {what}"
    return f"self.{name} is not set; set it in setup(self), which runs once in each worker"


def _hint_on_raise(error: BaseException) -> str:
    """Return a hint for a handler that raises a result that is made to be returned."""
    is_raised = (
        isinstance(error, TypeError) and message_of(error) == "exceptions must derive from BaseException"
    )
    if not is_raised:
        return ""
    return "return Rejected(...) or Response(...) in the list of results, at the position of its row"


def _almost_setup(service: type[Service]) -> str | None:
    """Return the method whose name was probably meant to be ``setup``."""
    methods = {name.replace("_", "").lower(): name for name in dir(service) if name not in dir(Service)}
    near = get_close_matches("setup", methods, n=1, cutoff=0.8)
    return methods[near[0]] if near else None


def _hint_on_rows(error: BaseException, rows: Any) -> str:
    """Return a hint for a handler that treats all rows of a batch as one row."""
    # A table has named columns, whether it has one row or many.
    if rows is None or hasattr(rows, "iloc"):
        return ""
    count = plural(len(rows), "row")
    for frame, code in _failing_expressions(error.__traceback__):
        if frame.f_locals.get(_treated_as_row(code, error, rows)) is rows:
            return (
                f"a handler receives all rows of a batch (here {count}), but {ast.unparse(code)} treats them "
                "as one row; iterate over them, as in [f(row) for row in rows], or index columns of an "
                "array, as in rows[:, 1]"
            )
    return ""


def _treated_as_row(code: ast.expr, error: BaseException, rows: Any) -> str:
    """Return the variable that the failed expression treats as one row; empty if there is none."""
    match code:
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            several = isinstance(index, ast.Tuple | ast.Slice)
            return name if isinstance(error, IndexError | KeyError | TypeError) and not several else ""
        case ast.Attribute(value=ast.Name(id=name)):
            # An array of many rows has the attributes of one row, so a missing attribute is a misspelling.
            return name if isinstance(error, AttributeError) and not hasattr(rows, "shape") else ""
        case ast.List(elts=[ast.Name(id=name)]):
            return name
    return ""


def _failing_expressions(at: TracebackType | None) -> Iterator[tuple[FrameType, ast.expr]]:
    """Yield the expression that failed in each frame, and for a call also its arguments."""
    while at is not None:
        frame, instruction = at.tb_frame, at.tb_lasti // 2
        at = at.tb_next
        places = islice(frame.f_code.co_positions(), instruction, None)
        line, end_line, start, end = next(places, (None,) * 4)
        if line is None or line != end_line:
            continue
        whole = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).encode()
        # If the file has changed since it was loaded, the positions may cut a character in two.
        text = whole[start:end].decode(errors="replace")
        try:
            code = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError):
            continue
        yield frame, code
        if isinstance(code, ast.Call):
            yield from ((frame, argument) for argument in code.args)


def warn_if_blocking(
    handler: Callable[[Any], Coroutine[Any, Any, Any]],
) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Wrap an async handler to warn once if it blocks the event loop for long."""
    has_warned = False

    async def call(rows: Any) -> Any:
        nonlocal has_warned
        turns: list[bool] = []
        turn = asyncio.get_running_loop().call_soon(turns.append, True)
        began = time.perf_counter()
        try:
            return await handler(rows)
        finally:
            turn.cancel()
            took_s = time.perf_counter() - began
            if not (has_warned or turns) and took_s > _LONG_S:
                has_warned = True
                log.warning(
                    "API %s: the async handler ran for %.1f s without awaiting anything, which blocks its "
                    "event loop; await asyncio.to_thread(...), or write def instead of async def",
                    *(handler.__name__, took_s),
                )

    return call
