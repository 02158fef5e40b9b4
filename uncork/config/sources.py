"""Where settings come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum

from uncork_workers.wire.overrides import Override


class Kind(IntEnum):
    """The places in which a setting can stand, in rising order."""

    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Source:
    """The place in which a setting stands; ``name`` is for people."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class RawSetting:
    """A setting as the command line would have it: a text, several, or whether a flag is on."""

    value: str | bool | list[str]
    source: Source


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a file or the environment says.

    Attributes:
        settings: by name of the option, with underscores.
        overrides: arguments of ``@api`` for single apis.
    """

    settings: dict[str, RawSetting] = field(default_factory=dict)
    overrides: list[tuple[Kind, Override]] = field(default_factory=list)


def suggestion(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """What to write in place of an unknown name: the nearest one if there is one, or what there is."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {shown(near[0])}?" if near else f"there are {', '.join(map(shown, names))}"
