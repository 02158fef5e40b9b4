"""The libraries that load models."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from uncork_workers.definition.hints import hint_on_import
from uncork_workers.wire.schema import DefinitionError


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
