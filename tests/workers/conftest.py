"""Fixtures of the workers' tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty working directory; modules imported from it are removed afterwards."""
    monkeypatch.chdir(tmp_path)
    path = sys.path.copy()
    before = set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(place is not None and Path(place).is_relative_to(tmp_path) for place in places):
            del sys.modules[name]
