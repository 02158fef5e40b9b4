"""Tables of text, for a terminal or a page in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uncork_loadtests.compare import Interval

# A pipe has no width.
_PIPED_WIDTH = 150


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table with notes below it."""

    title: str
    columns: Sequence[str]
    """The first is aligned left, the others right."""
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    emphasised: str = ""
    """First cell of the row to emphasise."""


def output() -> Console:
    """Return standard output, wide enough for tables if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPED_WIDTH)


def show(sheet: Sheet, *, console: Console, lines: Iterable[str] = ()) -> None:
    """Print a table, its notes, and more lines."""
    table = Table(title=Text(sheet.title), title_justify="left")
    for number, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for row in sheet.rows:
        table.add_row(*map(Text, row), style="bold" if row[0] == sheet.emphasised else None)
    console.print(table)
    for note in (*sheet.notes, *lines):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print()


def markdown(sheet: Sheet) -> str:
    """Write a table in Markdown, under a heading."""
    lines = [f"## {sheet.title}", ""]
    if sheet.rows:
        lines += [table_line(sheet.columns), table_line(["---", *("---:" for _ in sheet.columns[1:])])]
        for row in sheet.rows:
            bold = row[0] == sheet.emphasised
            lines.append(table_line(f"**{cell}**" if bold else cell for cell in row))
        lines.append("")
    lines += [f"* {note}" for note in sheet.notes]
    return "\n".join(lines).rstrip() + "\n"


def text(value: float | None, *, digits: int, scale: float = 1.0) -> str:
    """Format a number for a cell; None is a dash."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def median_known(found: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None without any."""
    known = [value for value in found if value is not None]
    return median(known) if known else None


def interval_text(ratio: Interval | None) -> str:
    """Format a median with its 95 % interval; None is a dash."""
    return "-" if ratio is None else str(ratio)


def table_line(cells: Iterable[str]) -> str:
    """Write a row of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
