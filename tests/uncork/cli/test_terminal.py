"""What commands print: tables whose cells are whole."""

from __future__ import annotations

from uncork.cli.terminal import as_text, plain_table


def test_a_long_cell_takes_no_room_from_the_others() -> None:
    hosts = ", ".join(f"host-{number}.example.com" for number in range(200))
    table = plain_table("setting", "value", "from", words=("value", "from"))
    table.add_row("allowed_hosts", hosts, "uncork.toml: allowed_hosts")

    heading, row = as_text([table]).splitlines()
    assert heading.split() == ["setting", "value", "from"]
    assert row == f"allowed_hosts  {hosts}  uncork.toml: allowed_hosts"
