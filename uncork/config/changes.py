"""Changes of the settings of a running server, how each takes effect, and their values as text."""

import inspect
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from uncork.config.option_fields import parameter_info


class Effect(StrEnum):
    """How a new value of a setting takes effect."""

    AT_ONCE = "at once"
    NEW_WORKERS = "with new workers"
    RESTART = "needs a restart"


class Change(msgspec.Struct, frozen=True):
    """A setting with another value than before.

    Attributes:
        name: as in the configuration file, such as ``workers`` or ``api.predict.mb_max_latency``.
        before, after: the values, for people; secrets never appear in them.
    """

    name: str
    before: str
    after: str
    effect: Effect


def names_of(changes: Sequence[Change]) -> str:
    """Return the names of the changed settings, separated by commas."""
    return ", ".join(change.name for change in changes)


def needing(effect: Effect, changes: Sequence[Change]) -> list[Change]:
    """Return the changes that take effect in this way."""
    return [change for change in changes if change.effect is effect]


_WITH_SECRETS = ("environment",)
"""Settings of items NAME=VALUE whose values may be secret."""


def without_secrets(name: str, value: Any) -> Any:
    """Return the value of a setting as everybody may see it."""
    if name not in _WITH_SECRETS:
        return value
    return value and [f"{one.partition('=')[0]}=***" for one in value]


def plain_value(value: Any) -> Any:
    """Return a value as JSON can express it."""
    return str(value) if isinstance(value, Path) else value


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
