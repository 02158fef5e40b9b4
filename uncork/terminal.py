"""What commands that measure for a while have in common: progress, results, and how they end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console, RenderableType
from rich.table import Table

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

# Wide enough that nothing is cut off: neither a terminal nor a file minds a long line.
_WIDTH = 1000


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, so that what was started is ended."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done now; quiet where nobody looks at a terminal."""
    console = Console(stderr=True, markup=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def show(parts: Iterable[RenderableType]) -> None:
    """Print the parts one below the other."""
    # Bodies and names of files may look like markup.
    console = Console(width=_WIDTH, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def write_json(target: str, figures: bytes) -> None:
    """Write to a file, or print for `-`; OSError if it cannot be written."""
    if target == "-":
        typer.echo(figures)
    else:
        Path(target).write_bytes(figures + b"\n")


def plain_table(*headings: str) -> Table:
    """A table without lines; the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, no_wrap=True, justify="right" if place else "left")
    return table
