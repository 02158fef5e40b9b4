"""Requests whose right answer follows from their content, so that a swapped answer is recognised."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

Act = Literal["", "raise", "die"]
"""What a row makes the handler do instead of answering."""

_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: chaos\r\n"
    "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)


class Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One row of a batch."""

    number: int
    pad: str = ""
    act: Act = ""


class _Predictions(msgspec.Struct):
    predictions: list[str]


def _read_json(body: bytes) -> tuple[str, ...]:
    """Return the answers in a body: a bare one, or several in the form of KServe V1."""
    found = msgspec.json.decode(body, type=str | _Predictions)
    return (found,) if isinstance(found, str) else tuple(found.predictions)


class Question(NamedTuple):
    """The bytes of a request, and the answers to its rows; empty if there is no right answer.

    Attributes:
        request: with its head over HTTP; the message of a call over gRPC.
        kind: the protocol, or the method of gRPC.
        read: returns the answers in a body; raises ValueError if there are none.
    """

    number: int
    request: bytes
    expected: tuple[str, ...] = ()
    kind: str = "HTTP"
    read: Callable[[bytes], tuple[str, ...]] = _read_json

    def is_answered_by(self, body: bytes) -> bool:
        """Whether the body holds the answers in order."""
        try:
            return bool(self.expected) and self.read(body) == self.expected
        except ValueError:
            return False


def right_answer(row: Row) -> str:
    """Return the right answer to a row."""
    digest = blake2b(f"{row.number} {row.pad}".encode(), digest_size=8).hexdigest()
    return f"{row.number} {digest} {row.pad}"


def ask(number: int, *, pad: str = "", act: Act = "") -> Question:
    """Return a request with one row on the native route."""
    row = Row(number=number, pad=pad, act=act)
    return Question(number, post("/predict", msgspec.json.encode(row)), (right_answer(row),))


def ask_rows(number: int, *, rows: int) -> Question:
    """Return a KServe V1 request with several rows."""
    each = [Row(number=number, pad=str(index)) for index in range(rows)]
    body = msgspec.json.encode({"instances": each})
    return Question(number, post("/v1/models/chaos:predict", body), tuple(map(right_answer, each)))


def post(path: str, body: bytes) -> bytes:
    return _HEAD.format(path=path, length=len(body)).encode() + body
