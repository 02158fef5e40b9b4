"""Where logs go: in colour to somebody who looks at a terminal, otherwise as plain lines or as JSON."""

from __future__ import annotations

import logging
import time
from typing import Any, Literal

import msgspec
from rich.console import Console, ConsoleRenderable, Group
from rich.control import Control
from rich.logging import RichHandler
from rich.segment import ControlType
from rich.text import Text
from rich.traceback import Traceback

from uncork_workers.process.context import BatchOfRecord

LogFormat = Literal["text", "json"]

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "batch_text"}


def is_watched(console: Console) -> bool:
    """Whether somebody looks at a terminal that can do more than print lines."""
    return console.is_terminal and not console.is_dumb_terminal


def log_to_stderr(
    level: str, who: str, *, log_format: LogFormat = "text", console: Console | None = None
) -> None:
    """Have all that this process logs go to stderr, as from ``who``: ``gateway``, or ``worker 0``.

    Warnings of Python are lines of the log too where they are to be read by machines.
    """
    console = console or Console(stderr=True)
    handler: logging.Handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter(who))
        logging.captureWarnings(True)
    elif is_watched(console):
        handler = _OnTerminal(console=console, show_path=False, log_time_format="%X")
        handler.setFormatter(logging.Formatter(f"{who}%(batch_text)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(batch_text)s: %(message)s"))
    handler.addFilter(BatchOfRecord())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _OnTerminal(RichHandler):
    """Tracebacks have the whole width. Each record begins with an empty line, as another process may show
    there what it waits for."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        except OSError:
            self.handleError(record)  # the terminal is gone; what is logged is no reason to fail
        else:
            super().emit(record)

    def render_message(self, record: logging.LogRecord, message: str) -> Text:
        """The first line; the others are no message, but what belongs to it."""
        return Text(message.partition("\n")[0])

    def render(
        self, *, record: logging.LogRecord, traceback: Traceback | None, message_renderable: ConsoleRenderable
    ) -> ConsoleRenderable:
        """The line, and below it what else there is."""
        line = super().render(record=record, traceback=traceback, message_renderable=message_renderable)
        more = self.format(record).partition("\n")[2]
        return Group(line, Text(more, "dim")) if more else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time in UTC, level, logger, message, process, and what else it has."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; what JSON does not know is written as text."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": self._process,
        }
        for name, value in vars(record).items():
            if name not in _OWN_FIELDS and value not in (None, ""):
                line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _as_json(line)


def _as_json(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        # Half of a surrogate pair, a number of more than 64 bits, a list that holds itself.
        text = {name: str(value).encode(errors="backslashreplace").decode() for name, value in line.items()}
        return msgspec.json.encode(text).decode()
