"""A batch whose stages run in different threads, while other batches are in the stages before and after."""

import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Event
from typing import Any

from msgspec.structs import replace

from uncork_workers.definition.service import ApiDefinition
from uncork_workers.process.batches.batch_run import BatchRun
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.process.children import Stopped, WorkerCode
from uncork_workers.process.context import Context, running
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch, Reply

Stage = Callable[[Any], Any]


class StagedRun(BatchRun):
    """The execution of one batch in three stages, each of which any thread may call.

    After a stage that fails, the others do nothing; then :meth:`answer_parts` runs parts of the batch with
    all stages in the calling thread, as without stages. So does a batch that needs several calls.

    Args:
        stages: prepare, the handler, and finish.
        handler: all three in one call.

    Attributes:
        error: the exception of the stage that failed.
        prepared: set when the first stage has ended.
        seconds: how long each stage took.
    """

    def __init__(
        self,
        api: ApiDefinition,
        handler: Stage,
        batch: Batch,
        bodies: Sequence[bytes],
        limit: SizeLimit,
        sink: GatewayConnection | None,
        *,
        stages: tuple[Stage, Stage, Stage],
    ) -> None:
        super().__init__(api, handler, batch, bodies, limit, sink)
        self._stages = stages
        self._context = copy_context()
        self._picked = self._requests
        """The valid requests."""
        self._work: Any = None
        """What the last stage returned."""
        self._needs_calls = False
        """Whether the batch needs several calls, or none."""
        self.error: BaseException | None = None
        self.prepared = Event()
        self.seconds = [0.0, 0.0, 0.0]

    def enter(self, context: Context) -> None:
        """Set what the code of the service gets as ``context()`` in all stages."""
        self._context.run(running.set, context)

    def prepare(self) -> None:
        """Merge the requests and run the first stage."""
        self._step(0, self._prepare)
        self.prepared.set()

    def call(self) -> None:
        """Call the handler, after the first stage if that has not run."""
        self._began = time.perf_counter()
        if not self.prepared.is_set():
            self.prepare()
        self._portion_began = time.perf_counter() - self.seconds[0]
        self._step(1, self._call)

    def finish(self) -> None:
        """Run the last stage and answer the requests."""
        self._step(2, self._finish)

    def reply(self) -> Reply:
        prepare_s, call_s, finish_s = self.seconds
        return replace(super().reply(), stages_s=(prepare_s, call_s, finish_s))

    def answer_parts(self) -> None:
        """Answer the requests after a stage has failed."""
        error, self.error, self._work = self.error, None, None
        assert error is not None
        if not self._needs_calls:
            self.calls.chunks.clear()  # the call has not worked if its last stage has not
            self.calls.metrics.restore(None)
        with WorkerCode():
            self._context.run(self.run_parts, error)

    def _step(self, number: int, stage: Callable[[], None]) -> None:
        if self.error is not None:
            return
        began = time.perf_counter()
        try:
            with WorkerCode():
                self._context.run(stage)
        except Stopped:
            raise
        except BaseException as error:
            self.error = error
        self.seconds[number] = time.perf_counter() - began

    def _prepare(self) -> None:
        self._picked, merged = self._merge(range(len(self.bodies)))
        rows = self.calls.begin(self._picked, merged)
        self._needs_calls = rows is None
        self._work = merged if rows is None else self._stages[0](rows)

    def _call(self) -> None:
        work, self._work = self._work, None
        self.calls.look()
        self.calls.stop_if_cancelled()
        if self._needs_calls:
            self._take(self.calls.call(self._picked, work))
        else:
            self._work = self._stages[1](work)
            self.calls.ended(time.perf_counter() - self._portion_began)

    def _finish(self) -> None:
        self.calls.stop_if_cancelled()
        if not self._needs_calls:
            self._take(self.calls.split(self._picked, self._stages[2](self._work)))
            self._work = None
