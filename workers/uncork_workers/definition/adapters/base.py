"""What an input adapter is: the worker's half of one kind of input.

The gateway's codec of the same kind has checked the structure of each request, counted its rows and
brought it to a form in which bodies travel. The adapter parses all requests of a batch at once, and
validates them fully; if that fails, it is asked again with each request alone.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from uncork_workers.wire.messages import UNKNOWN_STEP, Meta, RowPath, TensorForm, json_path

_PATH = re.compile(r"(`.*` in )?`\$\[([0-9]+)\](.*)`", re.DOTALL)
_POSITION = re.compile(r" \(byte [0-9]+\)$")
_STEP = re.compile(r"\[([0-9]+)\]|\[\.\.\.\]|\.([^.\[]+)")


class InvalidInput(ValueError):
    """A request is not what the api accepts; the message says what was wrong, and goes to the client.

    Args:
        pieces: the message, usually one text. A place in the rows between two texts becomes the path in the
            body that the client sent.
    """

    def __init__(self, *pieces: str | RowPath) -> None:
        super().__init__(*pieces)

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    def in_single_row(self) -> str:
        """The message with paths that begin in the row, for a body that is one row."""
        return "".join(json_path(*one.path) if isinstance(one, RowPath) else str(one) for one in self.args)


class Sample(NamedTuple):
    """A request of one row in the form in which the gateway's codec hands it on.

    ``body`` is the row as JSON, or as a client sends it if there is a ``meta``.
    """

    body: bytes
    meta: Meta | None = None


class Adapter(ABC):
    """One kind of input. ``kind`` names the codec at the gateway that goes with it.

    What the merges return has a length, its rows, and can be sliced. ``answers_each`` says that each result
    of the handler is the answer to its request: text is not JSON then, but plain text.
    """

    kind: ClassVar[str]
    answers_each: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """What the gateway's codec needs to know; plain data with at least ``kind``."""
        return {"kind": self.kind}

    def schema(self) -> dict[str, Any]:
        """JSON schema of a row."""
        return {}

    def sample(self, example: object) -> Sample:
        """The request of a client that sends ``example`` as its only row.

        Raises:
            InvalidInput: if it cannot be sent.
        """
        try:
            return Sample(msgspec.json.encode(example, enc_hook=_to_builtins))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"it cannot be written as JSON: {error}") from error

    @abstractmethod
    def merge(self, bodies: Sequence[bytes]) -> Any:
        """What the handler gets for bodies that are JSON rows with commas between them.

        Raises:
            InvalidInput: if at least one of them is not valid.
        """

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> Any:
        """As :meth:`merge`, of bodies that are raw tensors with so many rows each.

        Raises:
            InvalidInput: if at least one of them is not valid, or this kind of input takes no tensors.
        """
        raise InvalidInput("this api does not take binary tensors")

    def merge_table(self, bodies: Sequence[bytes], header: str, rows: Sequence[int]) -> Any:
        """As :meth:`merge`, of bodies that are lines of CSV under one header, with so many rows each.

        Raises:
            InvalidInput: if at least one of them is not valid, or this kind of input takes no CSV.
        """
        raise InvalidInput("this api does not take CSV")

    def merge_raw(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> Any:
        """As :meth:`merge`, of bodies that are as the clients sent them, one row each.

        Raises:
            InvalidInput: if at least one of them is not valid, or this kind of input takes only rows.
        """
        raise InvalidInput("this api does not take bodies of this kind")


def _to_builtins(value: Any) -> Any:
    """What JSON can hold, of the values that service authors have at hand."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no JSON")


def joined(bodies: Sequence[bytes]) -> bytes:
    """The rows of all bodies as one JSON array."""
    return b"".join((b"[", b",".join(bodies), b"]"))


def pieces_of(error: Exception) -> tuple[str | RowPath, ...]:
    """The message of an error of msgspec about a list of rows; the path at its end becomes a place.

    A position in bytes is left out: it counts the list, not the client's body.
    """
    message = _POSITION.sub("", str(error))
    text, at, path = message.rpartition(" - at ")
    found = _PATH.fullmatch(path)
    if found is None:
        return (message,)
    before, row, steps = found.groups(default="")
    return (f"{text}{at}{before}", RowPath(int(row), tuple(map(_step, _STEP.finditer(steps)))))


def _step(found: re.Match[str]) -> str | int:
    index, name = found.groups()
    return int(index) if index else name or UNKNOWN_STEP
