"""THIRD_PARTY.md names what pyproject.toml depends on."""

from __future__ import annotations

import re
import tomllib

from tests.e2e.server import ROOT


def test_every_dependency_has_its_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: found for name, found in project["optional-dependencies"].items() if name != "dev"}
    wanted = {
        (extra, re.split(r"[>\[]", requirement)[0])
        for extra, requirements in {"none": project["dependencies"], **extras}.items()
        for requirement in requirements
    }

    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", (ROOT / "THIRD_PARTY.md").read_text(), re.MULTILINE)
    found = {
        (extra.strip("`"), package)
        for extras_of_row, packages in rows[1:]
        for extra in extras_of_row.split(", ")
        for package in packages.split(", ")
    }

    assert found - {("---", "---")} == wanted
