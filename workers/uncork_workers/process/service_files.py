"""The source files of a service, to watch for reloading."""

from __future__ import annotations

import sys
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}


def service_files(target: str) -> list[str]:
    """Return the file of an imported service and of all imported modules in its project.

    The project is the folder of the service's file, or the folder that contains its top-level package.
    Installed packages are excluded, unless the service itself is in one: then its files are the project.
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
    if path.stem == module:
        return path.parent
    root = path.parents[module.count(".") + (path.stem == "__init__")]
    return root / module.partition(".")[0] if root.name in _INSTALLED else root


def _belongs(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not _INSTALLED.intersection(path.relative_to(root).parts)
