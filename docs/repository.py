"""Bring the files of the repository that the documentation links to into its site.

Pages link to examples, scripts and CHANGELOG.md by relative paths, which work on a forge and in an
editor. In the site such a file is a page below ``repository/``: Markdown as it is, other text as a block
of code, a folder as its README.md or a list of its files.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parent.parent
_DOCS = _ROOT / "docs"
_FOLDER = "repository"
# The target of a link in Markdown, without its anchor. Targets with a scheme are of other sites.
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".js": "js"}
_AS_THEY_ARE = (".md", ".png", ".svg")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files, and those that they link to."""
    pending = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    seen = set(pending)
    while pending:
        page = pending.pop()
        for link in _LINK.findall(page.read_text()):
            target = _target(page, link)
            if target not in seen and target.exists() and not target.is_relative_to(_DOCS):
                seen.add(target)
                files.append(_file(target, config))
                pending += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the places of their targets in the site."""
    here = page.file.src_uri
    file = _ROOT / here.removeprefix(f"{_FOLDER}/") if here.startswith(f"{_FOLDER}/") else _DOCS / here
    if not file.exists():  # made from another file: it has no links
        return markdown
    return _LINK.sub(lambda link: os.path.relpath(_uri(_target(file, link[1])), Path(here).parent), markdown)


def _target(page: Path, link: str) -> Path:
    """Return the file or folder that a page links to; for a folder that has one, its README.md."""
    target = Path(os.path.normpath(page.parent / link))
    readme = target / "README.md"
    return readme if readme.exists() else target


def _uri(path: Path) -> str:
    """Return the place of a file in the site, as its source."""
    if path.is_relative_to(_DOCS):
        return str(path.relative_to(_DOCS))
    uri = f"{_FOLDER}/{path.relative_to(_ROOT)}"
    return uri if path.suffix in _AS_THEY_ARE else f"{uri}.md"


def _file(path: Path, config: MkDocsConfig) -> File:
    if path.suffix in _AS_THEY_ARE:
        return File.generated(config, _uri(path), abs_src_path=str(path))
    if path.is_dir():
        body = "".join(f"* `{entry.name}`\n" for entry in sorted(path.iterdir()) if entry.name[0] not in "._")
    else:
        language = _LANGUAGES.get(path.suffix, "bash" if path.parent.name == "scripts" else "text")
        body = f"````{language}\n{path.read_text()}````\n"
    return File.generated(config, _uri(path), content=f"# `{path.relative_to(_ROOT)}`\n\n{body}")
