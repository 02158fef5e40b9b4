"""What commands print: tables whose cells are whole, and documents."""

from __future__ import annotations

from importlib import metadata
from typing import NoReturn

import msgspec
import pytest

from uncork.cli.terminal import as_document, as_text, plain_table


def test_a_long_cell_takes_no_room_from_the_others() -> None:
    hosts = ", ".join(f"host-{number}.example.com" for number in range(200))
    table = plain_table("setting", "value", "from", words=("value", "from"))
    table.add_row("allowed_hosts", hosts, "uncork.toml: allowed_hosts")

    heading, row = as_text([table]).splitlines()
    assert heading.split() == ["setting", "value", "from"]
    assert row == f"allowed_hosts  {hosts}  uncork.toml: allowed_hosts"


def test_figures_name_the_version_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the package was removed or upgraded during the run."""
    before = metadata.version("uncork")

    def gone(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", gone)

    assert msgspec.json.decode(as_document({"rows": 2})) == {"uncork": before, "rows": 2}
