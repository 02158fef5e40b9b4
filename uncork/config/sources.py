"""Settings that have been read, each with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from uncork_workers.wire.overrides import Override


class Kind(IntEnum):
    """Kinds of sources; a later one takes precedence."""

    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Source:
    """Where a setting comes from; ``name`` is the key, variable or option, for people."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class RawSetting:
    """A setting, as the command line takes it (a text, a list of texts, or a flag), or the option's value."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of one source.

    Attributes:
        settings: by name with underscores.
        overrides: its arguments of ``@api`` for single APIs.
        services: the settings of single services, by their names.
    """

    settings: dict[str, RawSetting] = field(default_factory=dict)
    overrides: list[tuple[Kind, Override]] = field(default_factory=list)
    services: dict[str, Configuration] = field(default_factory=dict)


def suggestion(
    name: str, known: Iterable[str], shown: Callable[[str], str] = str, *, listed_by: str = ""
) -> str:
    """Return advice for an unknown name: the nearest known one, or else all of them, or what lists them."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {shown(near[0])}?"
    if listed_by:
        return f"{listed_by} lists the settings"
    return f"expected one of {', '.join(map(shown, names))}"
