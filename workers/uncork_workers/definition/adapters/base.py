"""The base class of input adapters: the worker's half of one kind of input.

The gateway's codec of the same kind checks the structure of each request, counts its rows and writes its
body in one of the forms of ``wire.messages``. The adapter parses and validates all requests of a batch in
one call; if that fails, the worker calls it again with each request alone.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np

from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.json_faults import json_fault
from uncork_workers.wire.messages import UNKNOWN_STEP, Meta, RowPath, json_path

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a JSON decoder raises for a document that it cannot read."""

Value = bool | int | float | str | None
"""A cell of a table."""

_Decoded = TypeVar("_Decoded")
_NOT_FINITE = (b"NaN", b"Infinity")
_PATH = re.compile(r"(`.*` in )?`\$\[([0-9]+)\](.*)`", re.DOTALL)
_POSITION = re.compile(r" \(byte [0-9]+\)$")
_STEP = re.compile(r"\[([0-9]+)\]|\[\.\.\.\]|\.([^.\[]+)")


class InvalidInput(ValueError):
    """A request is not valid; the client gets 400 with the message.

    Args:
        pieces: the message, usually a single text, of which the client gets at most 2000 characters. The
            adapters of Uncork also pass locations in the rows, which become paths in the body that the client
            sent.
    """

    def __init__(self, *pieces: str | RowPath) -> None:
        super().__init__(*pieces)

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    def in_single_row(self) -> str:
        """Return the message with paths relative to the row, for a body that is a single row."""
        return "".join(json_path(*one.path) if isinstance(one, RowPath) else str(one) for one in self.args)


class Sample(NamedTuple):
    """A request of one row as the gateway's codec sends it.

    ``body`` is the row as JSON or, with ``meta``, as a client sends it.
    """

    body: bytes
    meta: Meta | None = None


class Adapter(ABC):
    """Base class of input adapters. To write your own, subclass :class:`RequestAdapter`.

    The ``merge`` methods return the handler's argument, a sequence of rows that supports ``len`` and slices,
    for the bodies of some requests. They raise :class:`InvalidInput` if at least one body is not valid, or
    the adapter does not accept bodies in this form.

    Attributes:
        kind: selects the gateway's codec.
        answers_each: whether each result of the handler is a complete response to its request. ``str``
            results are then plain text, not JSON.
    """

    kind: ClassVar[str]
    answers_each: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """Return the configuration of the gateway's codec: plain data with at least ``kind``."""
        return {"kind": self.kind}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a row."""
        return {}

    def sample(self, example: object) -> Sample:
        """Return the request of a client that sends ``example`` as its only row.

        Raises:
            InvalidInput: if the example cannot be sent.
        """
        try:
            return Sample(msgspec.json.encode(example, enc_hook=_to_builtins))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"it cannot be written as JSON: {error}") from error

    @abstractmethod
    def merge(self, bodies: Sequence[bytes]) -> Any:
        """Merge bodies of comma-separated JSON rows."""

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]) -> Any:
        """Merge tensors with the given numbers of rows."""
        raise InvalidInput("this API does not accept tensors")

    def merge_columns(self, bodies: Sequence[bytes], form: ColumnsForm, rows: Sequence[int]) -> Any:
        """Merge rows that are objects, with a tensor for each field and the given numbers of rows."""
        raise InvalidInput("this API does not accept several tensors")

    def merge_table(self, bodies: Sequence[bytes], header: str, rows: Sequence[int]) -> Any:
        """Merge lines of CSV under one header, with the given numbers of rows."""
        raise InvalidInput("this API does not accept CSV")

    def merge_values(self, bodies: Sequence[bytes]) -> Any:
        """Merge bodies of one JSON value each, whose syntax has not been checked.

        Read them one by one: malformed bodies can be valid JSON when they are joined.
        """
        raise InvalidInput("this API does not accept single JSON values")

    def merge_raw(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> Any:
        """Merge bodies as the clients sent them, one row each."""
        raise InvalidInput("this API does not accept bodies of this kind")

    def portions(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> list[int]:
        """Return how many of the bodies for :meth:`merge_raw` to merge and run at a time, in order.

        It limits the memory of rows that are much larger than their bodies.
        """
        return [len(bodies)]


def _to_builtins(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not supported")


def may_be_lenient(document: bytes) -> bool:
    """Return True if a document may have NaN or infinity, which standard JSON excludes."""
    return any(token in document for token in _NOT_FINITE)


def decode_leniently(decoder: msgspec.json.Decoder[_Decoded], document: bytes) -> _Decoded:
    """Decode JSON in which clients may have written NaN and infinity."""
    try:
        return decoder.decode(document)
    except UNREADABLE as error:
        if not may_be_lenient(document):
            if type(error) in (msgspec.DecodeError, RecursionError):
                raise msgspec.DecodeError(json_fault(document, error)) from error
            raise
        try:
            values = parse_json(document, parse_float=_finite, parse_int=_finite_integer)
        except ValueError as fault:  # Python's message has the place in all requests
            raise msgspec.DecodeError(json_fault(document, ValueError("JSON is malformed"))) from fault
        decoded: _Decoded = msgspec.convert(values, decoder.type, str_keys=True)
        return decoded


def parse_json(
    document: bytes,
    *,
    parse_float: Callable[[str], float] | None = None,
    parse_int: Callable[[str], int] | None = None,
) -> Any:
    """Parse JSON in which clients may have written NaN and infinity.

    Raises:
        ValueError: if it is malformed, or has half of a surrogate pair or an integer of thousands of digits.
        RecursionError: if it is nested too deeply.
    """
    text = document.decode()
    values = json.loads(text, parse_float=parse_float, parse_int=parse_int)
    if "\\u" in text:
        json.dumps(values, ensure_ascii=False).encode()  # halves of surrogate pairs raise
    return values


def decode_rows(
    decoder: msgspec.json.Decoder[_Decoded], bodies: Sequence[bytes], wrong: Callable[..., InvalidInput]
) -> _Decoded:
    """Decode the JSON rows of all bodies as one list.

    Raises:
        InvalidInput: what ``wrong`` makes of the reason, if they are not of the decoder's type.
    """
    try:
        return decode_leniently(decoder, json_array(bodies))
    except UNREADABLE as error:
        raise wrong(*message_pieces(error)) from error


def _finite(text: str) -> float:
    """Parse a float, which must be in the range of msgspec's: a neighbor in the batch changes no value."""
    if math.isinf(value := float(text)):
        raise ValueError("a number is out of range")
    return value


def _finite_integer(text: str) -> int:
    """Parse an integer in the range of floats, also where none is wanted: msgspec does not check that."""
    _finite(text)
    return int(text)


def json_array(bodies: Sequence[bytes]) -> bytes:
    """Return the rows of all bodies as one JSON array."""
    if len(bodies) == 1:
        return b"[%b]" % bodies[0]
    # One join, because bodies may be large: each is copied once.
    pieces = [b","] * (2 * len(bodies))
    pieces[:1] = [b"["]
    pieces[1::2] = bodies
    pieces.append(b"]")
    return b"".join(pieces)


def message_pieces(error: Exception) -> tuple[str | RowPath, ...]:
    """Return the message of a msgspec error about a list of rows, with the path at its end as a ``RowPath``.

    A byte position is dropped: it refers to the list, not to the client's body.
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
