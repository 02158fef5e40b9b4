"""Where logs go: in colour to somebody who looks at a terminal, otherwise as plain lines."""

from __future__ import annotations

import logging

from rich.console import Console, ConsoleRenderable, Group
from rich.control import Control
from rich.logging import RichHandler
from rich.segment import ControlType
from rich.text import Text
from rich.traceback import Traceback


def is_watched(console: Console) -> bool:
    """Whether somebody looks at a terminal that can do more than print lines."""
    return console.is_terminal and not console.is_dumb_terminal


def log_to_stderr(level: str, who: str, *, console: Console | None = None) -> None:
    """Have all logs of this process go to stderr, as from ``who``, which may have fields of its own."""
    console = console or Console(stderr=True)
    handler: logging.Handler
    if is_watched(console):
        handler = _OnTerminal(console=console, show_path=False, log_time_format="%X")
        handler.setFormatter(logging.Formatter(f"{who}: %(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _OnTerminal(RichHandler):
    """Tracebacks have the whole width. Each record begins with an empty line, as another process may show
    there what it waits for."""

    def emit(self, record: logging.LogRecord) -> None:
        self.console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
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
