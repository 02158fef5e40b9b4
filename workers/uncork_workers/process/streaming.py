"""Runs a handler that is a generator: each piece leaves as it is yielded, until nobody waits for more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Protocol

from uncork_workers.definition.outputs.answers import Rejected
from uncork_workers.definition.outputs.stream_pieces import PieceEncoder
from uncork_workers.wire.messages import AnswerHead


class Outlet(Protocol):
    """Where the pieces of answers go. ``batch`` is the number of the batch that runs."""

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        """Send some bytes; the first with a head."""

    def is_cancelled(self, batch: int) -> bool:
        """Whether nobody waits for more."""
        ...


class Stream:
    """One answer on its way out."""

    def __init__(self, batch: int, outlet: Outlet) -> None:
        self._batch = batch
        self._outlet = outlet
        self._encoder = PieceEncoder()
        self._has_begun = False
        self.refusal: Rejected | None = None
        """What the handler yielded instead of an answer."""

    def run(self, pieces: Generator[Any, None, None]) -> None:
        """Pass on what a generator yields, and close it.

        Raises:
            WrongResult: if it yields what cannot be sent.
            Exception: what it raises.
        """
        with closing(pieces):
            for piece in pieces:
                if not self._pass_on(piece):
                    break

    async def run_async(self, pieces: AsyncGenerator[Any, None]) -> None:
        """As :meth:`run`, for an asynchronous generator. All of it runs in one task."""
        async with aclosing(pieces):
            async for piece in pieces:
                if not self._pass_on(piece):
                    break

    def _pass_on(self, piece: Any) -> bool:
        """Send a piece; returns whether there is to be another."""
        if isinstance(piece, Rejected) and not self._has_begun:
            self.refusal = piece
            return False
        head, data = self._encoder.encode(piece)
        self._has_begun = True
        self._outlet.send_piece(self._batch, head, data)
        return not self._outlet.is_cancelled(self._batch)
