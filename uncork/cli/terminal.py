"""What commands that measure for a while have in common: progress, results, and how they end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from uncork.cli.errors import complain
from uncork_loadtests.generator.fleet import LoadTestError
from uncork_loadtests.servers import BenchError, end_on_sigterm
from uncork_loadtests.targets import NoSuchApi

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

# Wide enough that nothing is cut off: neither a terminal nor a file minds a long line.
_WIDTH = 1000


@contextlib.contextmanager
def measuring(command: str) -> Iterator[None]:
    """Exit with what an interrupted or failed measurement exits with, and tell why.

    SIGTERM unwinds the stack, so that what was started is ended.
    """
    end_on_sigterm()
    try:
        yield
    except (LoadTestError, BenchError, NoSuchApi) as error:
        complain(command, error)
        raise typer.Exit(2 if isinstance(error, NoSuchApi) else 1) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done now; quiet where nobody looks at a terminal."""
    console = Console(stderr=True, markup=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def as_text(parts: Iterable[RenderableType]) -> str:
    """The parts one below the other."""
    # Bodies and names of files may look like markup.
    console = Console(width=_WIDTH, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def show(parts: Iterable[RenderableType]) -> None:
    """Print the parts one below the other."""
    typer.echo(as_text(parts))


def write_json(target: str, figures: bytes) -> None:
    """Write to a file, or print for `-`; OSError if it cannot be written."""
    if target == "-":
        typer.echo(figures)
    else:
        Path(target).write_bytes(figures + b"\n")


def plain_table(*headings: str, words: Collection[str] = ()) -> Table:
    """A table without lines, in which nothing is cut off or broken into lines.

    The first column, and those with the headings `words`, stand to the left: they are text, not figures.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, no_wrap=True, justify="right" if place and heading not in words else "left")
    return table
