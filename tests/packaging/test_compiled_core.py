"""The modules that can be compiled, without a compiler of C: scripts/nightly uses the compiled ones."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.e2e.server import ROOT

WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def modules(sources: Path) -> list[Path]:
    """Link the packages into a folder, as they are in a wheel; return the paths of the modules in it."""
    for package in WHEEL["packages"]:
        (sources / Path(package).name).symlink_to(ROOT / package)
    patterns = WHEEL["hooks"]["custom"]["modules"]
    found = {each: sorted(sources.glob(each)) for each in patterns}
    assert all(found.values()), "a pattern names no module"
    return sorted({path.relative_to(sources) for paths in found.values() for path in paths})


@pytest.mark.slow
def test_mypyc_accepts_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setuptools")  # mypyc needs it
    from mypyc.build import mypycify

    names = list(map(str, modules(tmp_path)))
    monkeypatch.chdir(tmp_path)

    options = ["--config-file=", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    assert mypycify([*options, *names], target_dir=str(tmp_path / "c"), group_name="core")


def test_no_class_has_arguments_that_mypyc_drops(tmp_path: Path) -> None:
    """Such as ``frozen=True`` of a struct, without which it has no hash."""
    classes = [
        node
        for name in modules(tmp_path)
        for node in ast.walk(ast.parse((tmp_path / name).read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert classes

    assert [node.name for node in classes if node.keywords] == []
