"""Errors in the values of settings."""

from collections.abc import Mapping
from functools import partial
from typing import Any


class SettingError(ValueError):
    """Settings have values that are not accepted; the message begins with their names.

    Args:
        settings: the names of the fields or arguments at fault.
        says: the rest of the message, from the space or colon after the names on.
        of: what the settings belong to, for the beginning of the message.
    """

    def __init__(self, *settings: str, says: str, of: str = "") -> None:
        self._settings = settings
        self._says = says
        self._of = of
        super().__init__(of + self.under({}))

    def __reduce__(self) -> tuple[Any, ...]:
        # A process of a pool sends it to its parent.
        return partial(SettingError, *self._settings, says=self._says, of=self._of), ()

    def under(self, names: Mapping[str, str]) -> str:
        """Return the message with other names of the settings, such as those of options."""
        return " and ".join([names.get(setting, setting) for setting in self._settings]) + self._says
