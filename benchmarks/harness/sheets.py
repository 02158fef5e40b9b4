"""Tables of text: the same for a terminal and for a page in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Room for the tables; a pipe has no width to ask for.
_PIPED_WIDTH = 150


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table, with lines of text below it."""

    title: str
    columns: Sequence[str]
    """The first stands to the left, the others to the right."""
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    emphasised: str = ""
    """The row that begins with this stands out."""


def output() -> Console:
    """Standard output, wide enough if it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPED_WIDTH)


def show(sheet: Sheet, *, console: Console) -> None:
    """Print a table."""
    table = Table(title=Text(sheet.title), title_justify="left")
    for number, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for row in sheet.rows:
        table.add_row(*map(Text, row), style="bold" if row[0] == sheet.emphasised else None)
    console.print(table)
    for note in sheet.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print()


def markdown(sheet: Sheet) -> str:
    """The same as a table of Markdown under a heading."""
    lines = [f"### {sheet.title}", ""]
    if sheet.rows:
        lines += [_line(sheet.columns), _line(["---", *("---:" for _ in sheet.columns[1:])])]
        for row in sheet.rows:
            bold = row[0] == sheet.emphasised
            lines.append(_line(f"**{cell}**" if bold else cell for cell in row))
        lines.append("")
    lines += [f"* {note}" for note in sheet.notes]
    return "\n".join(lines).rstrip() + "\n"


def text(value: float | None, *, digits: int, scale: float = 1.0) -> str:
    """A number for a cell; a dash for none."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def median_known(found: Iterable[float | None]) -> float | None:
    """Median of those that are known; None if none is."""
    known = [value for value in found if value is not None]
    return median(known) if known else None


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
