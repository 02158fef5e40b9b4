"""What ``uncork check`` says where it cannot begin."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncork.cli.app import app
from uncork.server import private_folders


def test_without_a_folder_for_sockets_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(private_folders, "_SHORT", ())
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    result = CliRunner().invoke(app, ["check", "m:S"])

    assert result.exit_code == 1
    assert result.stderr.startswith("uncork check: cannot start the service: ")
    assert "Set TMPDIR to a folder with a shorter path" in result.stderr
    assert "[Errno" not in result.stderr
