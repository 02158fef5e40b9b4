"""Options, arguments and endings that the benchmarks' commands share."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from benchmarks.harness.sheets import Sheet, markdown, output, show
from uncork_loadtests.servers import BenchError, end_on_sigterm

MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", help="Write the tables to this file, in Markdown.")
]


@contextlib.contextmanager
def reporting_failures(program: str, *, progress: Console) -> Iterator[None]:
    """Print the error and exit with 1 if the program cannot do its job."""
    end_on_sigterm()
    try:
        yield
    except (BenchError, OSError) as error:
        progress.print(f"{program}: {error}", style="red", markup=False)
        raise typer.Exit(1) from error


def exit_with(faults: Sequence[str], *, progress: Console) -> NoReturn:
    """Print the faults; exit with 1 if there are any."""
    for fault in faults:
        progress.print(f"wrong: {fault}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(1 if faults else 0)


def publish(sheets: Sequence[Sheet], *, markdown_file: Path | None) -> None:
    """Print tables, and write them to a file if there is one."""
    for sheet in sheets:
        show(sheet, console=output())
    if markdown_file is not None:
        markdown_file.write_text("\n".join(map(markdown, sheets)))


def choose(text: str, known: Sequence[str], *, what: str) -> list[str]:
    """Parse names separated by commas; return them in the order of `known`.

    Raises:
        typer.BadParameter: if a name is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(f"unknown {what} {unknown[0]!r}; known: {', '.join(known)}")
    if not names:
        raise typer.BadParameter(f"no {what} is given; known: {', '.join(known)}")
    return [name for name in known if name in names]


def parse_counts(text: str) -> list[int]:
    """Parse whole numbers of at least 1, separated by commas.

    Raises:
        typer.BadParameter: if the text has another form.
    """
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers, such as 1,64") from error
    if min(found) < 1:
        raise typer.BadParameter(f"each of {text!r} must be at least 1, not {min(found)}")
    return found
