"""The tutorial, followed as it says: its files, its commands, its answers."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from contextlib import chdir
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.e2e.server import HTTP, serving
from tests.loops import HANG_S
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
    with chdir(folder):
        runpy.run_path("train.py")
    return folder


def without_id(text: str) -> str:
    return re.sub('"request_id":"[^"]+"', "", text)


def test_the_server_answers_as_the_page_says(folder: Path) -> None:
    """To each curl; and the clients share batches, by a hold with which they do on a starved machine, too."""
    target, no_haste = f"{folder / 'service.py'}:Iris", ("--mb-max-latency", "60000", "--policy", "fixed:500")
    with serving(target, *no_haste) as server:
        for command, answer in curls():
            url, body = command[1], command[command.index("-d") + 1]
            headers = {"content-type": "application/json"}
            reply = HTTP.post(url.replace("localhost:3000", server.base), content=body, headers=headers)
            assert without_id(reply.text) == without_id(answer)
        clients = folder / "clients.py"
        clients.write_text(clients.read_text().replace(BASE, server.base).replace("960", "96"))
        run = subprocess.run(
            [sys.executable, clients], capture_output=True, text=True, timeout=HANG_S, check=True
        )

    found = re.match(r"(\d+) requests/s, mean batch size (\d+)\n", run.stdout)
    assert found, run.stdout
    assert int(found[2]) > 1


def test_the_tests_of_the_page_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both; in this process, which has imported scikit-learn by now."""
    spec = spec_from_file_location("service", folder / "service.py")
    assert spec
    assert spec.loader
    service = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "service", service)
    spec.loader.exec_module(service)
    tests = runpy.run_path(str(folder / "test_service.py"))
    found = [test for name, test in tests.items() if name.startswith("test_")]

    for test in found:
        test()

    assert len(found) == 2


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
