"""Every place that names the version, or the versions of Python, names the same."""

import re
import tomllib

from tests.markdown_pages import DOCS, ROOT, all_pages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_VERSION = re.compile(r"uncork[-: ](\d+\.\d+\.\d+)|^(?:version|appVersion): (\d+\.\d+\.\d+)", re.MULTILINE)


def test_pages_and_manifests_name_the_version_of_the_project() -> None:
    files = [ROOT / "CITATION.cff", *all_pages(), *(ROOT / "deploy").rglob("*.yaml")]
    found = {file: {*_VERSION.findall(file.read_text())} for file in files}
    named = {file.name: {a or b for a, b in versions} for file, versions in found.items() if versions}

    assert {"CITATION.cff", "Chart.yaml", "compatibility.md", "deployment.md"} <= named.keys()
    assert {name: versions for name, versions in named.items() if versions != {PROJECT["version"]}} == {}


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    section = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]

    if section.startswith("Unreleased"):
        assert f"This will be {PROJECT['version']}" in section
    else:
        assert re.match(rf"{re.escape(PROJECT['version'])} - \d{{4}}-\d{{2}}-\d{{2}}\n", section)


def test_classifiers_are_the_supported_pythons() -> None:
    kinds = [one.removeprefix("Programming Language :: Python :: ") for one in PROJECT["classifiers"]]
    minors = [kind for kind in kinds if re.fullmatch(r"3\.\d+", kind)]
    page = (DOCS / "reference/compatibility.md").read_text()

    assert f"CPython {', '.join(minors[:-1])} and {minors[-1]}." in page
    assert f"Python {minors[0]} to {minors[-1]}." in (ROOT / "README.md").read_text()
    assert PROJECT["requires-python"] == f">={minors[0]}"
