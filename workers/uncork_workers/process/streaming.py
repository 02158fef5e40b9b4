"""Run a handler that is a generator: send each piece when it is yielded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Protocol

from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.outputs.stream_pieces import PieceEncoder
from uncork_workers.wire.messages import AnswerHead


class PieceSink(Protocol):
    """Where the pieces of a batch's response go."""

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        """Send a piece; the first one has a head."""

    def is_cancelled(self, batch: int) -> bool:
        """Return whether the client needs no more pieces."""
        ...


class Stream:
    def __init__(self, batch: int, sink: PieceSink) -> None:
        self._batch = batch
        self._sink = sink
        self._encoder = PieceEncoder()
        self._has_begun = False
        self.rejected: Rejected | None = None
        """What the handler yielded instead of a response."""

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
        if isinstance(piece, Rejected) and not self._has_begun:
            self.rejected = piece
            return False
        head, data = self._encoder.encode(piece)
        self._has_begun = True
        self._sink.send_piece(self._batch, head, data)
        return not self._sink.is_cancelled(self._batch)
