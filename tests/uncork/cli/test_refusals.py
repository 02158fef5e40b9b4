"""What commands say of options, files and variables that they refuse: the cases are in ``refusals.txt``.

Each is a command with variables before it, lines of its configuration file, and the message. A message that
ends in ``…`` has been cut before what a library says.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from tests.expected import check_texts
from uncork.cli.app import app

FILE = Path(__file__).with_name("refusals.txt")
CASE = re.compile(
    r"\$ (?P<variables>(?:UNCORK_\w+=(?:'[^']*'|\S+) )*)uncork (?P<words>.*)\n"
    r"(?P<file>(?:.*\n)*?)> (?P<says>.*)"
)


SERVICE = """
from uncork import Service, api
from uncork.adapters import Json

class Fine(Service):
    @api(input=Json())
    def predict(self, items):
        return items

class Wrong(Service):
    @api(input=Json(), policy="corky")
    def predict(self, items):
        return items
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that some of the commands name."""
    monkeypatch.chdir(tmp_path)
    files = {
        "token": "0123456789abcdef\n",
        "short": "0123456789abcde",
        "text": "text",
        "early": "0\n0.000001\n",
    }
    files["service.py"] = SERVICE
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "binary").write_bytes(b"\xff" * 40)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")


def said(words: list[str], variables: dict[str, str]) -> str:
    """Return what a command says, in one line without its name; it must end with 2 and do nothing."""
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200", **variables})
    assert (result.exit_code, result.stdout) == (2, ""), (words, result.output)
    told = " ".join(result.stderr.split())
    if told.startswith("Usage: "):
        return told.partition(" Error: ")[2]
    name = next(
        name for name in (f"uncork {' '.join(words[:2])}: ", f"uncork {words[0]}: ") if told.startswith(name)
    )
    return told.removeprefix(name)


def now() -> Iterator[str]:
    """Yield each case with what is said now."""
    for case in FILE.read_text().split("\n\n"):
        parts = CASE.fullmatch(case.strip("\n"))
        assert parts is not None, case
        words = shlex.split(parts["words"])
        if parts["file"]:
            Path("uncork.toml").write_text(parts["file"])
            words += ["--config", "uncork.toml"]
        variables = dict(one.split("=", 1) for one in shlex.split(parts["variables"]))
        told, known = said(words, variables), parts["says"]
        goes_on = known.endswith("…") and told.startswith(known[:-1])
        yield case.strip("\n")[: -len(known)] + (known if goes_on else told)


def test_what_is_refused_is_told() -> None:
    check_texts(FILE, "\n\n".join(now()) + "\n")
