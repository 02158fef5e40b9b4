"""What Uncork can do: each capability has a test, and no page denies it.

docs/capabilities.toml lists the capabilities.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from typing import Any

import pytest

from tests.markdown_pages import DOCS, ROOT, all_pages, name_of

CAPABILITIES: list[dict[str, Any]] = tomllib.loads((DOCS / "capabilities.toml").read_text())["capabilities"]
NEVER = {phrase for one in CAPABILITIES for phrase in one.get("never", [])}
# A sentence that says what Uncork lacks.
_DENIAL = re.compile(
    r"Uncork (lacks|has no|does not (have|support|offer))|does Uncork not|not in Uncork", re.I
)
_REASONS = re.compile(r"^## Reasons to stay\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one["words"])
def test_a_test_proves_it(capability: dict[str, Any]) -> None:
    path, _, name = capability["test"].partition("::")
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names, f"{path} has no {name}"


def test_the_comparison_says_so() -> None:
    """In the column of Uncork, the cells of these rows are the words of their capabilities."""
    page = (DOCS / "explanation/comparison.md").read_text()
    cells = dict(re.findall(r"^\| ([^|]+) \| ([^|]*) \|", page, re.MULTILINE))
    expected = defaultdict[str, list[str]](list)
    for capability in CAPABILITIES:
        if row := capability.get("row"):
            expected[row].append(capability["words"])
    for row, words in expected.items():
        assert cells.get(row) == ", ".join(words), row


def test_no_page_denies_it() -> None:
    assert not [f"{name_of(page)}: {what}" for page in all_pages() for what in denials_in(page.read_text())]


def test_denials_are_noticed() -> None:
    assert denials_in("It has a queue. Uncork lacks\nmany models in one server.") == ["many models"]
    assert denials_in("## Reasons to stay\n\nModels that load and unload.\n\n## Steps\n") == ["unload"]
    assert not denials_in("Triton serves many models.\n\n* Uncork has no response cache.\n")


def denials_in(text: str) -> list[str]:
    """Return the capabilities of Uncork that a page denies, by the phrases it uses."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    sentences = [one for one in re.split(r"(?<=[.:!?])\s+|\n\s*\n|\n\s*[*|]", text) if _DENIAL.search(one)]
    denied = " ".join([*sentences, *_REASONS.findall(text)])
    denied = " ".join(re.sub(r"\]\([^)]*\)", "]", denied).split())
    return sorted(phrase for phrase in NEVER if re.search(rf"\b{re.escape(phrase)}", denied, re.I))
