"""What an input adapter is: the worker's half of one kind of input.

The gateway's codec of the same kind has checked the structure of each request, counted its rows and
brought it to the form in which bodies travel. The adapter validates each request fully, and parses
all requests of a batch at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from uncork_workers.frames import TensorForm


class InvalidInput(ValueError):
    """A request is not what the api accepts; the message says what was wrong, and goes to the client."""


class Adapter(ABC):
    """One kind of input. ``kind`` names the codec at the gateway that goes with it."""

    kind: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """What the gateway's codec needs to know; plain data with at least ``kind``."""
        return {"kind": self.kind}

    @abstractmethod
    def merge(self, bodies: Sequence[bytes]) -> Any:
        """Parse the bodies of a batch at once into what the handler gets: something with a row per row.

        Raises:
            InvalidInput: if at least one of them is not valid; :meth:`check` then finds which.
        """

    @abstractmethod
    def check(self, body: bytes, rows: int) -> None:
        """Validate one request of ``rows`` rows alone.

        Raises:
            InvalidInput: if it is not what the api accepts.
        """

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> Any:
        """As :meth:`merge`, of bodies that are raw tensors with so many rows each.

        Raises:
            InvalidInput: if at least one of them is not valid, or this kind of input takes no tensors.
        """
        raise InvalidInput("this api takes JSON only, not binary tensors")

    def check_tensors(self, body: bytes, form: TensorForm, rows: int) -> None:
        """As :meth:`check`, of a body that is a raw tensor.

        Raises:
            InvalidInput: if it is not what the api accepts.
        """
        self.merge_tensors([body], form, [rows])


def joined(bodies: Sequence[bytes]) -> bytes:
    """The rows of all bodies as one JSON array."""
    return b"".join((b"[", b",".join(bodies), b"]"))
