"""Encode the values that a generator yields as pieces of a streamed response."""

from __future__ import annotations

from typing import Any

from uncork_workers.definition.outputs.encoding import OCTETS, TEXT
from uncork_workers.definition.outputs.json import encode_json
from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.wire.messages import AnswerHead

_LINES = "application/x-ndjson"
_NAMES = {OCTETS: "bytes", TEXT: "text", _LINES: "JSON"}


class PieceEncoder:
    """Encodes the pieces of one response."""

    def __init__(self) -> None:
        self._media_type = ""
        """The media type of the first piece, by its Python type."""

    def encode(self, piece: Any) -> tuple[AnswerHead | None, bytes]:
        """Return the bytes of a piece, with the head if it is the first.

        Raises:
            WrongResult: if the piece is of another kind than the first, or cannot be written.
        """
        if not self._media_type:
            return self._first(piece if isinstance(piece, Response) else Response(piece))
        media_type = _media_type_of(piece)
        if media_type != self._media_type:
            raise WrongResult(
                f"the handler yielded {_NAMES[self._media_type]} first, and {_NAMES[media_type]} later"
            )
        return None, _bytes_of(piece, media_type)

    def _first(self, response: Response) -> tuple[AnswerHead, bytes]:
        if response.is_bodiless:
            raise WrongResult(f"status {response.status} has no body, and cannot be streamed")
        self._media_type = _media_type_of(response.body)
        head = AnswerHead(
            status=response.status,
            content_type=response.content_type or self._media_type,
            headers=list(response.headers.items()),
        )
        return head, _bytes_of(response.body, self._media_type)


def _media_type_of(piece: Any) -> str:
    match piece:
        case str():
            return TEXT
        case bytes() | bytearray() | memoryview():
            return OCTETS
        case Response() | Rejected():
            raise WrongResult(f"only the first piece of an answer can be a {type(piece).__name__}")
        case _:
            return _LINES


def _bytes_of(piece: Any, media_type: str) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if media_type == OCTETS:
        return bytes(piece)
    [line] = encode_json([piece])
    return line + b"\n"
