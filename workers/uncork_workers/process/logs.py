"""Logging to stderr: in colour on a terminal, otherwise as plain or JSON lines."""

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
    """Return whether the console is a terminal that understands control codes."""
    return console.is_terminal and not console.is_dumb_terminal


def log_to_stderr(
    level: str,
    who: str,
    *,
    log_format: LogFormat = "text",
    console: Console | None = None,
    again: bool = False,
) -> None:
    """Send this process's log to stderr; ``who`` names the process, such as ``gateway`` or ``worker 0``.

    In the JSON format, Python warnings become log lines too. ``again`` replaces what an earlier call has set.
    """
    console = console or Console(stderr=True)
    handler: logging.Handler = logging.StreamHandler()
    logging.captureWarnings(log_format == "json")
    if log_format == "json":
        handler.setFormatter(JsonFormatter(who))
    elif is_watched(console):
        handler = _TerminalHandler(console=console, show_path=False, log_time_format="%X")
        handler.setFormatter(logging.Formatter(f"{who}%(batch_text)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(batch_text)s: %(message)s"))
    handler.addFilter(BatchOfRecord())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=again)


class _TerminalHandler(RichHandler):
    """Gives tracebacks the full width; clears the line first, as another process may show progress there."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
        except OSError:
            self.handleError(record)  # the terminal is gone; logging must not fail
        else:
            super().emit(record)

    def render_message(self, record: logging.LogRecord, message: str) -> Text:
        return Text(message.partition("\n")[0])

    def render(
        self, *, record: logging.LogRecord, traceback: Traceback | None, message_renderable: ConsoleRenderable
    ) -> ConsoleRenderable:
        # The message has only the first line of the record; the others follow below it, dimmed.
        line = super().render(record=record, traceback=traceback, message_renderable=message_renderable)
        more = self.format(record).partition("\n")[2]
        return Group(line, Text(more, "dim")) if more else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time in UTC, level, logger, message, process, and any extra fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
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
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _as_json(line)


def _as_json(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        # A lone surrogate, an integer of more than 64 bits, or a list that contains itself.
        text = {name: str(value).encode(errors="backslashreplace").decode() for name, value in line.items()}
        return msgspec.json.encode(text).decode()
