"""The page on checks has all findings, and none besides."""

import re
from pathlib import Path

from uncork_dispatcher.advice import TEMPLATES

ROOT = Path(__file__).parents[4]


def test_the_page_lists_what_can_be_found() -> None:
    judges = "".join(file.read_text() for file in (ROOT / "uncork" / "cli" / "check").glob("*.py"))
    page = (ROOT / "docs" / "guides" / "check.md").read_text()

    listed = re.findall(r"^\| `([a-z-]+)` \| (?:error|warning|note) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({key.partition("/")[0] for key in TEMPLATES if f'"{key}"' in judges})
