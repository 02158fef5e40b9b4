"""The classes of an API's requests: which of them a request names, and the counts of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import Header, printable
from uncork_gateway.protocols.lenient_json import read_members
from uncork_gateway.protocols.raw_json import NULL
from uncork_gateway.telemetry.metrics import ApiTally

CLASS_HEADER = "X-Request-Class"
_NAME = CLASS_HEADER.lower().encode()
_PRIORITY = "priority"
_SECOND = 2

_decoder: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)


class Classes(NamedTuple):
    """The two classes of an API.

    Attributes:
        names: their names; the first is the default.
    """

    names: tuple[str, str]
    bulk_tally: ApiTally

    def of_headers(self, headers: Sequence[Header]) -> bool | None:
        """Return True if the headers name the second class, False for the first, None without a name.

        Raises:
            BadRequest: if they name another class.
        """
        values = [value for name, value in headers if name.lower() == _NAME]
        if not values:
            return None
        named = printable(b", ".join(values))
        if named not in self.names:
            raise BadRequest(f"{CLASS_HEADER} must be {' or '.join(self.names)}, got {named[:100]!r}")
        return named == self.names[1]

    def is_bulk(self, named: bool | None, parameters: bytes) -> bool:
        """Return True if a request belongs to the second class.

        Args:
            named: the result of :meth:`of_headers`.
            parameters: the parameters of V2 as a JSON object, of which ``priority`` names a class as in
                Triton; empty without parameters.

        Raises:
            BadRequest: if the priority names no class, or contradicts the header.
        """
        level = self._level(parameters) if parameters else 0
        if not level:
            return bool(named)
        if named is not None and named is not (level == _SECOND):
            raise BadRequest(
                f"{CLASS_HEADER} names the class {self.names[named]!r}, but the parameter {_PRIORITY!r} is "
                f"{level}, {self.names[level - 1]!r}; send one of them"
            )
        return level == _SECOND

    def _level(self, parameters: bytes) -> int:
        """Return the level in the parameters; 0 for the default class."""
        text = read_members(parameters, name="parameters").get(_PRIORITY, msgspec.Raw(NULL))
        try:
            level = _decoder.decode(text) or 0
        except msgspec.DecodeError:
            level = -1
        if not 0 <= level <= _SECOND:
            first, second = self.names
            raise BadRequest(
                f"the parameter {_PRIORITY!r} must be 0 (the default), 1 ({first}) or 2 ({second})"
            )
        return level
