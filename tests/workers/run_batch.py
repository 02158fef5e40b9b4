"""Batches as the gateway sends them, run by an Executor."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from uncork_workers.definition.service import Service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.messages import AnswerHead, Batch, Reply


class Outlet:
    """Takes the pieces of streamed responses; after ``enough`` pieces nobody waits for more."""

    def __init__(self, *, enough: int = 99) -> None:
        self.pieces: list[tuple[AnswerHead | None, bytes]] = []
        self._enough = enough

    def send_piece(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        assert batch == 1
        self.pieces.append((head, data))

    def is_cancelled(self, batch: int) -> bool:
        assert batch == 1
        return len(self.pieces) >= self._enough


def batch_of(
    api: str, *bodies: bytes, rows: Sequence[int] = (), limit_rows: int = 1000, **fields: Any
) -> Batch:
    return Batch(
        batch=1,
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
