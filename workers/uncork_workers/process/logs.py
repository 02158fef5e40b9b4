"""Logging to stderr: in colour on a terminal, otherwise as plain or JSON lines."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from uncork_workers.process.context import add_batch

if TYPE_CHECKING:
    from rich.console import Console

LogFormat = Literal["text", "json"]

_FORCES_COLOUR = {"FORCE_COLOR", "TTY_COMPATIBLE"}
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "batch_text"}


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
    handler: logging.Handler = logging.StreamHandler()
    logging.captureWarnings(log_format == "json")
    if log_format == "json":
        handler.setFormatter(JsonFormatter(who))
    elif terminal := _terminal_handler(console):
        handler = terminal
        handler.setFormatter(logging.Formatter(f"{who}%(batch_text)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(batch_text)s: %(message)s"))
    handler.addFilter(add_batch)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=again)


def _terminal_handler(console: Console | None) -> logging.Handler | None:
    """Return a handler that writes in colour; None if nobody watches."""
    if console is None:
        if not (sys.stderr.isatty() or _FORCES_COLOUR & os.environ.keys()):
            return None
        # Importing rich would take a third of the start of a worker.
        from rich.console import Console

        console = Console(stderr=True)
    if not is_watched(console):
        return None
    # Its base imports what highlights the code in tracebacks.
    from uncork_workers.terminal_logs import TerminalHandler

    return TerminalHandler(console=console, show_path=False, log_time_format="%X")


def is_watched(console: Console) -> bool:
    """Return whether the console is a terminal that understands control codes."""
    return console.is_terminal and not console.is_dumb_terminal


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
            if name not in _OWN_FIELDS and value is not None and (type(value) is not str or value):
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
