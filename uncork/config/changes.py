"""Changes of the settings of a running server, and how each takes effect."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec


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
