"""Logging in colour, for people who watch a terminal."""

import logging

from rich.console import ConsoleRenderable, Group
from rich.control import Control
from rich.logging import RichHandler
from rich.segment import ControlType
from rich.text import Text
from rich.traceback import Traceback


class TerminalHandler(RichHandler):
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
