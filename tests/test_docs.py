"""The pages in Markdown: links lead somewhere, and code is what a reader can use.

The pages about services and about other systems are scripts, whose assertions are run here;
``tests/e2e/examples/test_tutorial.py`` follows the tutorial.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import markdown
import pytest
import yaml
from typer.testing import CliRunner

from tests.markdown_pages import (
    DOCS,
    ROOT,
    Block,
    all_pages,
    anchors,
    blocks,
    links,
    name_of,
    target_of,
    tokens,
)
from uncork.cli.app import app
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.errors import WrongUsage
from uncork.config.file import read_file

# Their Python, but for that of other systems, is one script, in order.
SCRIPTS = [DOCS / "guides/services.md", *sorted((DOCS / "coming-from").glob("*.md"))]
OTHER_SYSTEMS = {"ray"}


def test_links_lead_somewhere() -> None:
    """To a file or a folder that there is, and within a page to one of its headings."""
    for page in all_pages():
        for link in links(page):
            target, anchor = target_of(page, link)
            assert target.exists(), f"{name_of(page)} links to {link}"
            assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_every_page_of_docs_is_reached_from_the_index() -> None:
    reached, ahead = set[Path](), [DOCS / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [target_of(page, link)[0] for link in links(page)]

    assert set(DOCS.rglob("*.md")) <= reached


def test_the_site_shows_the_same_lists_and_tables() -> None:
    """Python-Markdown wants four spaces and more blank lines than the parser of a forge."""
    site = markdown.Markdown(extensions=["md_in_html", "sane_lists", "tables", "pymdownx.superfences"])
    for page in all_pages():
        if "\n::: " in (source := page.read_text()):
            continue  # made of docstrings
        html = site.reset().convert(source)
        for tag, kind in (("<li>", "list_item_open"), ("<tr>", "tr_open"), ("<pre", "fence")):
            expected = sum(token.type == kind for token in tokens(page))
            assert html.count(tag) == expected, f"{tag} in {name_of(page)}"


def test_python_compiles_and_names_what_there_is() -> None:
    for block in blocks_of_all("python"):
        code = compile(block.code, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(code):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "uncork":
                module = importlib.import_module(node.module or "")
                lacking = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not lacking, f"{block}: {node.module} has no {lacking}"


@pytest.mark.parametrize("page", SCRIPTS, ids=name_of)
def test_the_code_of_the_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, as one script; its assertions say what it does."""
    ours = [block for block in blocks(page, "python") if not is_of_another_system(block)]
    lines: list[str] = []
    for block in ours:
        lines += [""] * (block.line - 1 - len(lines))  # so that errors have the page's own line numbers
        lines += block.code.splitlines()
    script = ModuleType("page")
    monkeypatch.setitem(sys.modules, script.__name__, script)

    exec(compile("\n".join(lines), page, "exec"), vars(script))

    assert any("assert" in block.code for block in ours)


def test_documents_parse() -> None:
    for language, parse in (("json", json.loads), ("toml", tomllib.loads), ("yaml", parse_yaml)):
        for block in blocks_of_all(language):
            try:
                parse(block.code)
            except (ValueError, yaml.YAMLError) as error:
                raise AssertionError(f"{block}: {error}") from error


def test_configurations_have_settings_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "uncork.toml"
    for block in blocks_of_all("toml"):
        file.write_text(block.code)
        wrong = [complaint for command in CONFIGURABLE if (complaint := complaint_of(file, command))]
        assert len(wrong) < len(CONFIGURABLE), f"{block}: {wrong}"


def test_commands_are_there() -> None:
    """Every ``uncork`` has its command and options, every ``scripts/...`` is a file."""
    for block, words in commands():
        if words[0] == "uncork":
            assert not refusal_of(words[1:]), f"{block}: {refusal_of(words[1:])}"
        else:
            assert (ROOT / words[0]).is_file(), f"{block}: there is no {words[0]}"


@pytest.mark.parametrize("arguments", [["srv"], ["serve", "a.py:A", "--wrokers", "2"], ["reload", "--fast"]])
def test_wrong_commands_are_noticed(arguments: list[str]) -> None:
    assert "No such" in refusal_of(arguments)


def is_of_another_system(block: Block) -> bool:
    """Whether it imports what is not installed here."""
    names = re.findall(r"^(?:from|import) (\w+)", block.code, re.MULTILINE)
    return not OTHER_SYSTEMS.isdisjoint(names)


def complaint_of(file: Path, command: str) -> str:
    """What is said against a configuration; empty if nothing."""
    try:
        read_file(file, command, CONFIGURABLE)
    except WrongUsage as wrong:
        return str(wrong)
    return ""


def parse_yaml(text: str) -> object:
    return list(yaml.safe_load_all(text))


def blocks_of_all(*languages: str) -> list[Block]:
    """The blocks of code of all pages that are in one of the languages."""
    return [block for page in all_pages() for block in blocks(page, *languages)]


def commands() -> Iterator[tuple[Block, list[str]]]:
    """The words of each command in the shell's blocks, without variables in front, pipes and comments."""
    for block in blocks_of_all("bash", "sh", "console"):
        for line in re.sub(r"\\\n", " ", block.code).splitlines():
            if re.match(r"(\$ )?(\w+=\S+ )*(uncork|(\./)?scripts/)", line):
                words = shlex.split(re.sub(r"^(\$ )?(\w+=\S+ )*", "", line), comments=True)
                ends = [at for at, word in enumerate(words) if re.match(r"[|&;<>]|\d>", word)]
                yield block, words[: min(ends, default=len(words))]


def refusal_of(arguments: list[str]) -> str:
    """What the command line says against a command and its options; ``--help`` keeps it from running."""
    result = CliRunner().invoke(app, [*arguments, "--help"])
    return result.output if result.exit_code else ""
