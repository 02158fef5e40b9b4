"""The files of a service: what has to be watched to reload it."""

from __future__ import annotations

import sys
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}


def service_files(target: str) -> list[str]:
    """The file of a service that is imported, and of all modules imported so far that belong to its project.

    Those are the ones beside and below it, for a service in a package those beside and below the package.
    What is installed does not count; of an installed package its own files do.
    """
    place = target.rpartition(":")[0]
    name = Path(place).stem if place.endswith(".py") else place
    own = getattr(sys.modules[name], "__file__", None)
    if own is None:
        return []
    root = _root(name, Path(own))
    files = {own}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _belongs(Path(file), root):
            files.add(file)
    return sorted(files)


def _root(module: str, path: Path) -> Path:
    """The folder of a project."""
    if path.stem == module:
        return path.parent
    root = path.parents[module.count(".") + (path.stem == "__init__")]
    return root / module.partition(".")[0] if root.name in _INSTALLED else root


def _belongs(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not _INSTALLED.intersection(path.relative_to(root).parts)
