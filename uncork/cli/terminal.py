"""What commands print: tables, JSON, a line of progress, and errors."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

NOTHING = "-"
"""A figure that is not known."""

# Wide enough that nothing is cut off; terminals and files accept long lines.
_WIDTH = 1_000_000
# Read at the start: at the end of a long run, another version may be installed, or none.
_VERSION = version("uncork")


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Give a function that shows the current step on stderr; it does nothing where stderr is no terminal."""
    console = Console(stderr=True, markup=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def as_text(parts: Iterable[RenderableType], *, styled: bool = True) -> str:
    """Render parts one below the other; where stdout is a terminal, with its codes if ``styled``."""
    colours: Literal["auto"] | None = "auto" if styled else None
    # Bodies and names of files may look like markup.
    console = Console(width=_WIDTH, markup=False, emoji=False, highlight=False, color_system=colours)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def show(parts: Iterable[RenderableType]) -> None:
    """Print parts one below the other."""
    typer.echo(as_text(parts))


def write_files(
    command: str, json: str | None, figures: Callable[[], bytes], *writes: Callable[[], None]
) -> int:
    """Write result files and return the exit code: 1 if one cannot be written, after printing why.

    ``figures`` makes the content of the file ``json``: None for no file, ``-`` to print it. Call this before
    printing tables, because their reader may leave early; print the tables in any case.
    """
    code = 0
    files: list[Callable[[], None]] = [partial(_write_json, json, figures), *writes]
    for write in files:
        try:
            write()
        except OSError as error:
            print_error(command, error)
            code = 1
    return code


def as_document(figures: Mapping[str, Any]) -> bytes:
    """Encode figures as JSON with the version that made them; NaN and infinity become null."""
    return msgspec.json.format(msgspec.json.encode({"uncork": _VERSION, **figures}))


def percent(share: float) -> str:
    """Format a share; exactly 0 and 100 only for none and all: of 10 000 requests, one counts."""
    if share in (0, 1):
        return f"{share:.0%}"[:-1]
    return NOTHING if math.isnan(share) else f"{min(max(100 * share, 0.01), 99.99):.2f}"


def _write_json(target: str | None, figures: Callable[[], bytes]) -> None:
    if target == "-":
        typer.echo(figures())
    elif target is not None:
        Path(target).write_bytes(figures() + b"\n")


def plain_table(*headings: str, words: Collection[str] = ()) -> Table:
    """Return a table without lines, whose cells are never cut off or wrapped.

    Columns of figures are aligned right; the first column, and those with the headings ``words``, left.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, no_wrap=True, justify="right" if place and heading not in words else "left")
    return table


def print_error(command: str, message: object) -> None:
    """Print an error of ``uncork COMMAND`` as one unwrapped paragraph, in red on a terminal."""
    text = Text.assemble((f"uncork {command}:", "bold red"), " ", str(message))
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)
