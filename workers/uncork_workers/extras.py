"""How to install the packages of Uncork's extras."""

from __future__ import annotations

from importlib.metadata import requires


def install_command(extra: str) -> str:
    """Return a shell command that installs the packages of an extra, however Uncork was installed.

    It names these packages rather than ``uncork[extra]``, which pip would look up on a package index.

    Raises:
        ValueError: if there is no such extra.
    """
    split = [requirement.partition(";") for requirement in requires("uncork") or ()]
    packages = [package.strip() for package, _, marker in split if f"'{extra}'" in marker.replace('"', "'")]
    if not packages:
        raise ValueError(f"Uncork has no extra {extra!r}")
    return " ".join(["pip install", *(f"'{package}'" for package in packages)])
