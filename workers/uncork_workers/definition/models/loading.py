"""Make a service class from a model file."""

import glob
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from uncork_workers.definition.hints import hint_on_import
from uncork_workers.definition.models.targets import class_name, is_model_folder
from uncork_workers.definition.service import Service
from uncork_workers.wire.values import DefinitionError

_MAKERS = {
    ".onnx": ("onnx", "service"),
    ".joblib": ("scikit_learn", "service"),
    ".pkl": ("scikit_learn", "service"),
    ".json": ("boosters", "xgboost_service"),
    ".ubj": ("boosters", "xgboost_service"),
    ".txt": ("boosters", "lightgbm_service"),
}
"""For each kind the module and its function that returns the class that serves a file."""

_PICKLES = (".joblib", ".pkl")


def service_of_model(target: str, *, trust_pickle: bool = False) -> type[Service]:
    """Open a model and return the class that serves it.

    Raises:
        DefinitionError: if the model is missing, or cannot be served.
    """
    service = _made(Path(target), trust_pickle=trust_pickle)
    service.__name__ = service.__qualname__ = class_name(target)
    return service


def _made(path: Path, *, trust_pickle: bool) -> type[Service]:
    if is_model_folder(str(path)):
        from uncork_workers.definition.models import transformers

        return transformers.service(path.absolute(), trust_pickle=trust_pickle)
    _check_file(path)
    if path.suffix in _PICKLES and not trust_pickle:
        raise DefinitionError(
            "this is a pickle, which can run any code when it is loaded; give --trust-pickle if you trust "
            "its author, or export the model as ONNX"
        )
    module, function = _MAKERS[path.suffix]
    service: type[Service] = getattr(import_module(f"{__package__}.{module}"), function)(path)
    return service


def _check_file(path: Path) -> None:
    if not path.exists():
        raise DefinitionError("there is no such file; give the path of a model file")
    if not path.is_file():
        raise DefinitionError(f"this is not a file; give the path of a {path.suffix} file")
    if not path.stat().st_size:
        raise DefinitionError("the file is empty; export the model again")


def model_files(target: str) -> list[str]:
    """Return the files of a model: those of its folder, or its own and those that continue its name."""
    path = Path(target).absolute()
    if is_model_folder(target):
        found = [*path.glob("*"), *path.glob("*/*.json")]
    else:
        found = [*path.parent.glob(f"{glob.escape(path.name)}*")]
    return sorted(str(file) for file in found if file.is_file())


def library(name: str) -> Any:
    """Import a library.

    Raises:
        DefinitionError: if it is missing or broken.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise DefinitionError(_failed(f"it requires {name}", error)) from error


def load(name: str, how: Callable[[], Any]) -> Any:
    """Load a model with the library of this name.

    Raises:
        DefinitionError: if that raises an exception, of any class: libraries have no common one, and a pickle
            runs code of its own.
    """
    try:
        return how()
    except Exception as error:
        raise DefinitionError(_failed(f"{name} cannot load it", error)) from error


def _failed(what: str, error: Exception) -> str:
    hint = hint_on_import(error) or "save the model again, with the versions of the libraries installed here"
    return f"{what}: {type(error).__name__}: {error}; {hint}"
