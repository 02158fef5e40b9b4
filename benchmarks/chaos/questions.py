"""Requests whose right answer follows from themselves, so that a swapped answer is known from its text."""

from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

Act = Literal["", "raise", "raise late", "die"]
"""What a row has the handler do instead of answering."""

_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: chaos\r\n"
    "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
)


class Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the service is sent, one item of a batch."""

    number: int
    pad: str = ""
    act: Act = ""


class _Predictions(msgspec.Struct):
    predictions: list[str]


class Question(NamedTuple):
    """A request as it is sent, and the answers to its rows; none if there is no right answer to it."""

    number: int
    request: bytes
    expected: tuple[str, ...] = ()

    def is_answered_by(self, body: bytes) -> bool:
        """Whether these are the answers, in their order: a bare one, or several as KServe (V1) has them."""
        try:
            found = msgspec.json.decode(body, type=str | _Predictions)
        except msgspec.DecodeError:
            return False
        given = (found,) if isinstance(found, str) else tuple(found.predictions)
        return bool(self.expected) and given == self.expected


def answer(row: Row) -> str:
    """What the service says of a row."""
    digest = blake2b(f"{row.number} {row.pad}".encode(), digest_size=8).hexdigest()
    return f"{row.number} {digest} {row.pad}"


def ask(number: int, *, pad: str = "", act: Act = "") -> Question:
    """One row on the service's own route."""
    row = Row(number=number, pad=pad, act=act)
    return Question(number, post("/predict", msgspec.json.encode(row)), (answer(row),))


def ask_rows(number: int, *, rows: int) -> Question:
    """Several rows in one request, in the words of TensorFlow Serving and KServe."""
    each = [Row(number=number, pad=str(index)) for index in range(rows)]
    body = msgspec.json.encode({"instances": each})
    return Question(number, post("/v1/models/chaos:predict", body), tuple(map(answer, each)))


def post(path: str, body: bytes) -> bytes:
    """A request."""
    return _HEAD.format(path=path, length=len(body)).encode() + body
