"""From what a generator yields to the bytes of a streamed answer."""

from __future__ import annotations

from typing import Any

from uncork_workers.definition.outputs.answers import Rejected, Response, WrongResult
from uncork_workers.definition.outputs.json import encode_json
from uncork_workers.wire.messages import AnswerHead

_OK = 200
_OCTETS = "application/octet-stream"
_TEXT = "text/plain; charset=utf-8"
_LINES = "application/x-ndjson"
_NAMES = {_OCTETS: "bytes", _TEXT: "text", _LINES: "JSON"}


class PieceEncoder:
    """Encodes the pieces of one answer, one after the other."""

    def __init__(self) -> None:
        self._kind = ""
        """Media type that the first piece has by itself."""

    def encode(self, piece: Any) -> tuple[AnswerHead | None, bytes]:
        """The bytes of a piece, and what goes before those of the first.

        Raises:
            WrongResult: if it is not of the kind of the first, or cannot be written.
        """
        if not self._kind:
            return self._first(piece if isinstance(piece, Response) else Response(piece))
        kind = _kind_of(piece)
        if kind != self._kind:
            raise WrongResult(f"the handler yielded {_NAMES[self._kind]} first, and {_NAMES[kind]} later")
        return None, _bytes_of(piece, kind)

    def _first(self, response: Response) -> tuple[AnswerHead, bytes]:
        if response.is_bodiless:
            raise WrongResult(f"status {response.status} has no body, and cannot be streamed")
        self._kind = _kind_of(response.body)
        head = AnswerHead(
            status=response.status,
            content_type=response.content_type or self._kind,
            headers=list(response.headers.items()),
        )
        return head, _bytes_of(response.body, self._kind)


def _kind_of(piece: Any) -> str:
    match piece:
        case str():
            return _TEXT
        case bytes() | bytearray() | memoryview():
            return _OCTETS
        case Response() | Rejected():
            raise WrongResult(f"only the first piece of an answer can be a {type(piece).__name__}")
        case _:
            return _LINES


def _bytes_of(piece: Any, kind: str) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if kind == _OCTETS:
        return bytes(piece)
    [line] = encode_json([piece])
    return line + b"\n"
