"""Errors of a command on stderr."""

from rich.console import Console
from rich.text import Text


def print_error(command: str, message: object) -> None:
    """Print an error of ``uncork COMMAND`` as one unwrapped paragraph, in red on a terminal."""
    text = Text.assemble((f"uncork {command}:", "bold red"), " ", str(message))
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
