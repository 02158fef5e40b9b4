"""Batches as the gateway sends them, run by an Executor."""

import os
from collections.abc import Collection, Sequence, Set
from contextlib import closing
from typing import Any
from weakref import finalize

from uncork_workers.definition.service import Service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import AnswerHead, Batch, Reply


class Outlet(GatewayConnection):
    """Takes the pieces of streamed responses; after ``enough`` pieces nobody waits for more.

    Attributes:
        gone: the requests whose clients have left.
    """

    def __init__(self, *, enough: int = 99, gone: Collection[int] = ()) -> None:
        self.gone = set(gone)
        self._arrivals, self._sent = os.pipe()
        for end in (self._arrivals, self._sent):
            finalize(self, os.close, end)
        self.pieces: list[tuple[AnswerHead | None, bytes]] = []
        self._enough = enough

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        assert batch == 1
        self.pieces.append((head, data))

    def look(self) -> bool:
        return len(self.pieces) < self._enough

    def left(self, batch: int) -> Set[int]:
        assert batch == 1
        return self.gone

    def fileno(self) -> int:
        return self._arrivals

    def leave(self, *requests: int) -> None:
        """Let the clients of some requests leave."""
        self.gone.update(requests)
        os.write(self._sent, b"x")


def batch_of(
    api: str,
    *bodies: bytes,
    number: int = 1,
    rows: Sequence[int] = (),
    limit_rows: int = 1000,
    **fields: Any,
) -> Batch:
    return Batch(
        batch=number,
        api=api,
        limit_rows=limit_rows,
        lengths=list(map(len, bodies)),
        rows=list(rows or [1] * len(bodies)),
        **fields,
    )


def run_batch(
    service: Service, api: str, *bodies: bytes, outlet: Outlet | None = None, **fields: Any
) -> tuple[Reply, list[bytes]]:
    with closing(Executor(service, outlet)) as executor:
        reply, answers = executor.run(batch_of(api, *bodies, **fields), list(bodies))
    assert reply.batch == 1
    assert reply.lengths == list(map(len, answers))
    return reply, answers
