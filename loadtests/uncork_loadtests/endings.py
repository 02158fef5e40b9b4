"""How programs that measure end: servers are ended too, and what failed is told, with its exit code."""

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.console import Console

from uncork_loadtests.extras import ExtraMissing
from uncork_loadtests.servers import BenchError

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write everything measured to this file.")]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", help="Write the tables to this file, in Markdown.")
]


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, so that what was started is ended."""
    signal.signal(signal.SIGTERM, stop)


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """Unwind, and end all servers on the way."""
    raise SystemExit(128 + number)


@contextlib.contextmanager
def telling_failures(program: str, *, progress: Console) -> Iterator[None]:
    """Run a program that starts servers: if it cannot do its job it says why, and exits with 1."""
    end_on_sigterm()
    try:
        yield
    except (BenchError, ExtraMissing, OSError) as error:
        progress.print(f"{program}: {error}", style="red", markup=False)
        raise typer.Exit(1) from error


def exit_with(faults: Sequence[str], *, progress: Console) -> NoReturn:
    """Tell what was wrong; the exit code is 1 if anything was."""
    for fault in faults:
        progress.print(f"wrong: {fault}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(1 if faults else 0)


def write_json(report: object, file: Path) -> None:
    """Write everything to a file; OSError if that fails."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
