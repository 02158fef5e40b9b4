"""Values of settings, for people and for programs."""

import inspect
from enum import Enum
from pathlib import Path
from typing import Any

from uncork.config.option_fields import parameter_info

_WITH_SECRETS = ("environment",)
"""Settings of items NAME=VALUE whose values may be secret."""


def without_secrets(name: str, value: Any) -> Any:
    """Return the value of a setting as everybody may see it."""
    if name not in _WITH_SECRETS:
        return value
    return value and [f"{one.partition('=')[0]}=***" for one in value]


def plain_value(value: Any) -> Any:
    """Return a value as JSON can express it."""
    return str(value) if isinstance(value, Path | Enum) else value


def value_text(value: Any, *, unset: str = "(none)") -> str:
    """Return a value for people; ``unset`` stands for no value."""
    plain = plain_value(value)
    if plain in (None, ""):
        return unset
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, float):
        return f"{plain:g}" if float(f"{plain:g}") == plain else repr(plain)
    if isinstance(plain, list | tuple):
        return ", ".join(map(str, plain))
    return str(plain)


def unset_text(parameter: inspect.Parameter) -> str:
    """Return the text for an option without a value, which says what it means."""
    info = parameter_info(parameter.annotation)
    shown = info.show_default if info is not None and isinstance(info.show_default, str) else "not set"
    return f"({shown})"
