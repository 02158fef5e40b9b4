"""What goes wrong in a command, told on stderr: in red where somebody looks at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def print_error(command: str, message: object) -> None:
    """Say what went wrong in ``uncork COMMAND``, as one paragraph that is not broken into lines."""
    text = Text.assemble((f"uncork {command}:", "bold red"), " ", str(message))
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
