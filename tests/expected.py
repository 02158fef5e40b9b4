"""Files of texts that a test compares with the program's."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console


def check_texts(file: Path, texts: str) -> None:
    """Compare texts with a file. ``UPDATE_TEXTS=1`` writes the file, to review its difference."""
    if os.environ.get("UPDATE_TEXTS"):
        file.write_text(texts)
    assert texts == file.read_text(), f"if the new texts are right, run UPDATE_TEXTS=1 pytest for {file}"


def check_messages(file: Path, message: Callable[[str], str]) -> None:
    """Compare messages with those in a file, which has each below the expression that leads to it.

    A message in the file that ends in ``…`` has been cut before what a library says.
    """
    cases = []
    for case in file.read_text().rstrip().split("\n\n"):
        expression, _, known = case.partition("\n> ")
        now = message(expression)
        is_cut = known.endswith("…") and now.startswith(known[:-1])
        cases.append(f"{expression}\n> {known if is_cut else now}\n")
    check_texts(file, "\n".join(cases))


def printed(*parts: Any) -> str:
    """Return what a command prints of tables and texts, on a wide terminal."""
    console = Console(width=200, markup=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
