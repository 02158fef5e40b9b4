"""The tutorial, followed as it says: its files, its commands, its answers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import serving
from tests.markdown_pages import DOCS, blocks

PAGE = DOCS / "tutorial.md"
BASE = "http://127.0.0.1:3000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all files of the page, which have their names on their first lines, and the forest."""
    folder = tmp_path_factory.mktemp("tutorial")
    for block in blocks(PAGE, "python"):
        name = re.match(r"# (\w+\.py)\n", block.code)
        assert name, f"{block} does not say which file it is"
        (folder / name[1]).write_text(block.code)
    run(folder, "train.py")
    return folder


def run(folder: Path, *arguments: str) -> str:
    """Run Python as in the terminal of the page."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_the_server_answers_as_the_page_says(folder: Path) -> None:
    """To each curl; and the clients share batches."""
    target, no_haste = f"{folder / 'service.py'}:Iris", ("--mb-max-latency", "60000")
    with serving(target, "--workers", "2", *no_haste) as server:
        for command, answer in curls():
            url, body = command[1], command[command.index("-d") + 1]
            headers = {"content-type": "application/json"}
            reply = httpx.post(url.replace("localhost:3000", server.base), content=body, headers=headers)
            assert reply.text == answer
        clients = folder / "clients.py"
        clients.write_text(clients.read_text().replace(BASE, server.base).replace("960", "96"))
        printed = run(folder, "clients.py")

    found = re.match(r"(\d+) answers per second, in batches of (\d+) rows on average\n", printed)
    assert found, printed
    assert int(found[2]) > 1


def test_the_tests_of_the_page_pass(folder: Path) -> None:
    """Both."""
    assert "2 passed" in run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_service.py")


def curls() -> list[tuple[list[str], str]]:
    """The words of each curl on the page, and what is printed below it."""
    parts = [
        part
        for block in blocks(PAGE, "console")
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    ]
    found = [part.partition("\n") for part in parts if re.match(r"curl .* -d ", part)]
    assert len(found) > 2
    return [(shlex.split(command), answer.strip()) for command, _, answer in found]
