"""Finds the service that a target such as ``module:Service`` or ``path/file.py:Service`` names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from uncork_workers.description import DefinitionError
from uncork_workers.service import Service, find_apis


class TargetError(Exception):
    """The target is not a service that can be served; the message says why."""


def load_service(target: str) -> type[Service]:
    """Import the service class that ``target`` names.

    Raises:
        TargetError: if there is no such module, file or class, it is not a Service, or has no api. If
            the user's own code raised while it was imported, that is the cause (``__cause__``).
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise TargetError(f"{target!r} is not of the form MODULE:SERVICE or FILE.py:SERVICE")
    try:
        module = _load_file(place) if place.endswith(".py") else _load_module(place)
    except TargetError:
        raise
    except DefinitionError as error:
        raise TargetError(f"{place}: {error}") from None
    except (Exception, SystemExit) as error:
        raise TargetError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    service = getattr(module, name, None)
    if service is None:
        raise TargetError(f"{place} has no {name!r}; {_services_of(module)}")
    if not isinstance(service, type) or not issubclass(service, Service):
        raise TargetError(f"{place}: {name} is not a subclass of uncork.Service; {_services_of(module)}")
    try:
        find_apis(service)
    except DefinitionError as error:
        raise TargetError(f"{place}: {error}") from None
    return service


def _load_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise TargetError(f"there is no file {place}")
    # As if the file were run: what lies beside it can be imported.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _load_module(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise TargetError(f"there is no module {error.name!r} here or among the installed ones") from None
        raise


def _services_of(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Service) and value is not Service
    ]
    return f"it has {', '.join(names)}" if names else "it has no service at all"
