"""The project's pages in Markdown: their links, headings and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_PARSER = MarkdownIt("gfm-like", {"linkify": False})


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of code.

    Attributes:
        line: of its first line of code, counted from 1.
    """

    page: Path
    language: str
    code: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def all_pages() -> list[Path]:
    """Those of the root, of docs, of the examples, of deploy and of the benchmarks' results."""
    below = (
        page
        for folder in ("docs", "examples", "deploy", "benchmarks")
        for page in (ROOT / folder).rglob("*.md")
    )
    return sorted([*ROOT.glob("*.md"), *below])


def name_of(page: Path) -> str:
    """How a page is called in the name of a test."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of code of a page that are in one of the languages; those within lists, too."""
    return [
        Block(page=page, language=token.info.split(" ")[0], code=token.content, line=token.map[0] + 2)
        for token in tokens(page)
        if token.type == "fence" and token.map and token.info.split(" ")[0] in languages
    ]


def links(page: Path) -> list[str]:
    """The targets of links and pictures, but for those to other sites."""
    targets = (
        str(token.attrs.get("href", token.attrs.get("src", "")))
        for token in _inline(page)
        if token.type in {"link_open", "image"}
    )
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def target_of(page: Path, link: str) -> tuple[Path, str]:
    """The file and the anchor that a link leads to; the anchor is empty if it has none."""
    path, _, anchor = unquote(link).partition("#")
    return (page.parent / path).resolve() if path else page, anchor


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link may name behind ``#``: the headings, as GitHub makes anchors of them."""
    found: list[str] = []
    found_tokens = tokens(page)
    for at, token in enumerate(found_tokens):
        if token.type == "heading_open":
            words = "".join(
                child.content
                for child in found_tokens[at + 1].children or []
                if child.type in {"text", "code_inline"}
            )
            plain = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            again = sum(re.fullmatch(rf"{re.escape(plain)}(-\d+)?", other) is not None for other in found)
            found.append(f"{plain}-{again}" if again else plain)
    return frozenset(found)


@cache
def tokens(page: Path) -> list[Token]:
    return _PARSER.parse(page.read_text())


def _inline(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or []
