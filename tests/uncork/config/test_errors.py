"""What is wrong in file and environment: told with its place, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.uncork.config.asking import refused
from uncork.cli.configurable import CONFIGURABLE
from uncork.config.environment import read_environment
from uncork.config.errors import WrongUsage
from uncork.config.file import read_file


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.toml"
    told = f"uncork serve: --config: {nowhere}: No such file or directory\n"
    assert refused("serve", "--config", nowhere) == told
    assert refused("serve", environment={"UNCORK_CONFIG": str(nowhere)}) == told
    assert f"{tmp_path}: Is a directory" in refused("proxy", "--config", tmp_path)
    nowhere.write_bytes(b"\xff")
    assert f"{nowhere} is not valid TOML: " in refused("serve", "--config", nowhere)


NAMES = st.sampled_from(["workers", "max-queue-rows", "api", "serve", "proxy", "policy", "p", "timeout"])
SCALARS = ['"x"', "true", "1.5", "nan", "2020-01-01", "[]", "-1", "0", "3"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3).map(
        lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
    ),
    max_leaves=6,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
TEXTS = TABLES.map(lambda table: "\n".join(f"{key} = {value}" for key, value in table.items()))
VARIABLES = st.from_regex(r"UNCORK_(API_[A-Z_]+_TIMEOUT|[A-Z_]+)", fullmatch=True)


def complaint(read: Callable[[], object]) -> str | None:
    """What is said against something, if it cannot be read; anything but this fails the test."""
    try:
        read()
    except WrongUsage as error:
        return str(error)
    return None


@given(text=st.text() | TEXTS)
def test_whatever_a_file_says_it_is_read_or_refused(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text(text, encoding="utf-8", errors="replace")

    told = complaint(lambda: read_file(file, "serve", CONFIGURABLE))
    assert told is None or str(file) in told


@given(environment=st.dictionaries(VARIABLES, st.text()))
def test_whatever_the_environment_says_it_is_read_or_refused(environment: dict[str, str]) -> None:
    told = complaint(lambda: read_environment(environment, "serve", CONFIGURABLE))

    assert told is None or told.startswith(tuple(environment))
