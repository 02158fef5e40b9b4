from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from uncork_workers.extras import install_command

ROOT = Path(__file__).parent.parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "dev"])  # dev names other extras
def test_the_command_installs_what_the_extra_declares(extra: str) -> None:
    """The shell passes each requirement to pip as one argument; the installer may have sorted its bounds."""
    pip, install, *packages = shlex.split(install_command(extra))

    assert (pip, install) == ("pip", "install")
    assert sorted(map(parts, packages)) == sorted(map(parts, EXTRAS[extra]))


def parts(requirement: str) -> list[str]:
    bare = requirement.replace(" ", "")
    name = bare[: min(bare.find(sign) for sign in "<>=" if sign in bare)]
    return [name, *sorted(bare.removeprefix(name).split(","))]


def test_an_extra_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="Uncork has no extra 'page'"):
        install_command("page")
