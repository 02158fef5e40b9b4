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
    """One streamed response, whose media type is that of the first piece, by its Python type.

    If the handler yields a ``Rejected`` instead, that is ``rejected``.
    """

    def __init__(self, batch: int, sink: GatewayConnection) -> None:
        self._batch = batch
        self._sink = sink
        self._media_type = ""
        self.rejected: Rejected | None = None

    def run(self, pieces: Generator[Any, None, None]) -> None:
        """Send what a generator yields until it ends or the client needs no more, and close it.

        Raises:
            WrongResult: if a piece is of another kind than the first, or cannot be written.
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
        head = None
        if not self._media_type:
            if isinstance(piece, Rejected):
                self.rejected = piece
                return False
            response = piece if isinstance(piece, Response) else Response(piece)
            head, piece = self._begin(response), response.body
        media_type = _media_type_of(piece)
        if media_type != self._media_type:
            raise WrongResult(
                f"the handler yielded {_NAMES[self._media_type]} first, but {_NAMES[media_type]} later"
            )
        self._sink.send_piece(self._batch, head, _bytes_of(piece, media_type))
        return self._sink.look() and not self._sink.left(self._batch)

    def _begin(self, response: Response) -> AnswerHead:
        if response.is_bodiless:
            raise WrongResult(f"status {response.status} allows no body and cannot be streamed")
        self._media_type = _media_type_of(response.body)
        return AnswerHead(
            status=response.status,
            content_type=response.content_type or self._media_type,
            headers=response.checked_headers(),
        )


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
