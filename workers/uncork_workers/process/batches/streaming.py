"""Run a handler that is a generator: encode and send each piece when it is yielded."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any

from uncork_workers.definition.outputs.encoding import OCTETS, TEXT
from uncork_workers.definition.outputs.json import encode_json
from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import AnswerHead

_LINES = "application/x-ndjson"
_NAMES = {OCTETS: "bytes", TEXT: "text", _LINES: "JSON"}


class Stream:
    """One streamed response. If the handler yields a ``Rejected`` instead, that is ``rejected``."""

    def __init__(self, batch: int, sink: GatewayConnection) -> None:
        self._batch = batch
        self._sink = sink
        self._encoder = PieceEncoder()
        self.rejected: Rejected | None = None

    def run(self, pieces: Generator[Any, None, None]) -> None:
        """Send what a generator yields until it ends or the client needs no more, and close it.

        Raises:
            WrongResult: if a piece cannot be sent.
            Exception: what the generator raises.
        """
        with closing(pieces):
            for piece in pieces:
                if not self._send(piece):
                    break

    async def run_async(self, pieces: AsyncGenerator[Any, None]) -> None:
        """Like :meth:`run`, for an async generator, all of which runs in one task."""
        async with aclosing(pieces):
            async for piece in pieces:
                if not self._send(piece):
                    break

    def _send(self, piece: Any) -> bool:
        """Send a piece; return whether to continue."""
        if isinstance(piece, Rejected) and not self._encoder.media_type:
            self.rejected = piece
            return False
        head, data = self._encoder.encode(piece)
        self._sink.send_piece(self._batch, head, data)
        return self._sink.look() and not self._sink.left(self._batch)


class PieceEncoder:
    """Encodes the pieces of one response. ``media_type`` is that of the first piece, by its Python type."""

    def __init__(self) -> None:
        self.media_type = ""

    def encode(self, piece: Any) -> tuple[AnswerHead | None, bytes]:
        """Return the bytes of a piece, with the head if it is the first.

        Raises:
            WrongResult: if the piece is of another kind than the first, or cannot be written.
        """
        if not self.media_type:
            return self._first(piece if isinstance(piece, Response) else Response(piece))
        media_type = _media_type_of(piece)
        if media_type != self.media_type:
            raise WrongResult(
                f"the handler yielded {_NAMES[self.media_type]} first, but {_NAMES[media_type]} later"
            )
        return None, _bytes_of(piece, media_type)

    def _first(self, response: Response) -> tuple[AnswerHead, bytes]:
        if response.is_bodiless:
            raise WrongResult(f"status {response.status} allows no body and cannot be streamed")
        self.media_type = _media_type_of(response.body)
        head = AnswerHead(
            status=response.status,
            content_type=response.content_type or self.media_type,
            headers=list(response.headers.items()),
        )
        return head, _bytes_of(response.body, self.media_type)


def _media_type_of(piece: Any) -> str:
    match piece:
        case str():
            return TEXT
        case bytes() | bytearray() | memoryview():
            return OCTETS
        case Response() | Rejected():
            raise WrongResult(f"only the first piece of a response can be a {type(piece).__name__}")
        case _:
            return _LINES


def _bytes_of(piece: Any, media_type: str) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if media_type == OCTETS:
        return bytes(piece)
    [line] = encode_json([piece])
    return line + b"\n"
