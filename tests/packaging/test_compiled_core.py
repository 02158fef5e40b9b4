"""The modules that can be compiled, without a compiler of C: scripts/nightly uses the compiled ones."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.e2e.server import ROOT


@pytest.mark.slow
def test_mypyc_accepts_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setuptools")  # mypyc needs it
    from mypyc.build import mypycify

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        (tmp_path / Path(package).name).symlink_to(ROOT / package)
    monkeypatch.chdir(tmp_path)
    modules = {
        path.relative_to(tmp_path)
        for each in wheel["hooks"]["custom"]["modules"]
        for path in tmp_path.glob(each)
    }

    options = ["--config-file=", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    assert mypycify([*options, *map(str, sorted(modules))], target_dir=str(tmp_path / "c"), group_name="core")
