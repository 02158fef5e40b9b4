"""Execute the batches of one service object."""

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.hints import add_hint, adding_hints, warn_if_blocking
from uncork_workers.definition.outputs.host import on_host
from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.outputs.tensors import copied
from uncork_workers.definition.service import ApiDefinition, Service, find_apis
from uncork_workers.process.batches.batch_run import BatchRun
from uncork_workers.process.batches.handler_loop import HandlerLoop, HandlerLoopThread
from uncork_workers.process.batches.size_limit import SizeLimit
from uncork_workers.process.batches.staged_run import Stage, StagedRun
from uncork_workers.process.batches.streaming import Stream
from uncork_workers.process.children import Stopped, WorkerCode
from uncork_workers.process.context import Context, departures, running
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch, Reply


class Executor:
    """Executes batches one at a time, and those of APIs with ``concurrency`` in several threads.

    Attributes:
        sink: the gateway; None if nobody can leave, and no handler is a generator.
        limits: by API, the size of calls that fits into memory.
        staged: the APIs with ``prepare`` or ``finish``.
    """

    def __init__(self, service: Service, sink: GatewayConnection | None = None) -> None:
        self._service = service
        self.sink = sink
        self._apis = {definition.name: definition for definition in find_apis(type(service))}
        self.limits = {name: SizeLimit() for name in self._apis}
        self.concurrency = {
            name: most for name, one in self._apis.items() if (most := one.description.concurrency) > 1
        }
        """How many batches may run at once, of each API of which several may."""
        # One loop for all handlers: they may share clients that belong to it.
        self._loop = HandlerLoopThread() if self.concurrency else HandlerLoop()
        locks = Lock(), Lock()
        self._stages = {
            name: (
                self._stage(definition.prepare, locks[0]),
                self._handler(getattr(service, name), definition),
                self._stage(definition.finish, locks[1], is_last=True),
            )
            for name, definition in self._apis.items()
        }
        self.staged = [name for name, definition in self._apis.items() if definition.has_stages]
        self._handlers = {
            name: _in_turn(stages) if self._apis[name].has_stages else stages[1]
            for name, stages in self._stages.items()
        }

    def close(self) -> None:
        self._loop.close()

    def _stage(self, stage: Callable[..., Any] | None, lock: Lock, *, is_last: bool = False) -> Stage:
        """Wrap ``prepare`` or ``finish``: one call at a time of all APIs, as they may share what it uses."""
        if stage is None:
            return _same
        method = getattr(self._service, stage.__name__)  # a subclass may override it

        def call(rows: Any) -> Any:
            with lock, WorkerCode(), adding_hints(self._service):
                returned = method(rows)
                # Another thread encodes them, and meanwhile the next call may reuse the same arrays.
                return copied(on_host(returned)) if is_last else returned

        return call

    def _handler(self, method: Callable[[Any], Any], definition: ApiDefinition) -> Stage:
        """Wrap a handler to run to its end if it is async, and to add hints to what it raises."""
        is_async = inspect.iscoroutinefunction(method)
        handler = warn_if_blocking(method) if is_async else method
        if is_async and self.concurrency:
            handler = _copying(handler)
        hints_on_rows, is_last = definition.prepare is None, definition.finish is None

        def call(rows: Any) -> Any:
            with WorkerCode():
                try:
                    returned = self._loop.run(handler(rows), departures()) if is_async else handler(rows)
                    # At once: a copy waits for the device, which is part of the batch's time, and then the
                    # memory of the device is free.
                    returned = on_host(returned) if is_last else returned
                    return copied(returned) if is_last and definition.has_stages else returned
                except BaseException as error:
                    add_hint(error, self._service, rows if hints_on_rows else None)
                    raise

        return call

    def run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Reply, list[bytes]]:
        """Execute a batch. Every request gets a status and a body, whatever the handler raises."""
        definition, handler = self._apis[batch.api], self._handlers[batch.api]
        if definition.description.streams:
            handler = partial(self._stream, batch.batch, handler)
        run = BatchRun(definition, handler, batch, bodies, self._limit(batch), self.sink)
        token = running.set(self._context(batch, run))
        try:
            for portion in run.portions():
                failure: BaseException | None = None
                try:
                    run.run(portion)
                except Stopped:
                    raise
                except BaseException as error:
                    failure = error
                # Not while the exception is handled: those of the parts would refer to it.
                if failure is not None:
                    run.run_parts(failure)
        finally:
            running.reset(token)
        return run.reply(), run.bodies

    def in_stages(self, batch: Batch, bodies: Sequence[bytes]) -> StagedRun | None:
        """Return a run of a batch whose stages may overlap with other batches; None if they must not."""
        definition = self._apis[batch.api]
        if not (definition.has_stages and batch.idempotent):
            return None
        run = StagedRun(
            definition,
            self._handlers[batch.api],
            batch,
            bodies,
            self._limit(batch),
            self.sink,
            stages=self._stages[batch.api],
        )
        run.enter(self._context(batch, run))
        return run if len(run.portions()) == 1 else None

    def _limit(self, batch: Batch) -> SizeLimit:
        """Return what the calls of a batch may have: what was learned here, or by the process before."""
        limit = self.limits[batch.api]
        if limit.pads is not batch.pads:
            limit.count_in(pads=batch.pads, known=batch.fits)
        return limit

    def run_example(self, batch: Batch, bodies: Sequence[bytes]) -> object:
        """Execute a warm-up batch and return what the last call of the handler returned.

        Raises:
            BaseException: what the handler raised, or why it was not called.
        """
        limit = self.limits[batch.api]
        run = BatchRun(self._apis[batch.api], self._handlers[batch.api], batch, bodies, limit)
        token = running.set(self._context(batch, run))
        try:
            for portion in run.portions():
                run.run(portion)
        finally:
            running.reset(token)
        if not run.calls.chunks:
            raise InvalidInput(run.bodies[0].decode())
        return run.calls.returned

    def _stream(self, batch: int, handler: Callable[[Any], Any], rows: Any) -> Rejected | None:
        """Send the pieces that a generator yields; return a ``Rejected`` that it yields instead."""
        assert self.sink is not None
        stream, pieces = Stream(batch, self.sink), handler(rows)
        with WorkerCode(), adding_hints(self._service, rows):
            if isinstance(pieces, AsyncGenerator):
                self._loop.run(stream.run_async(pieces), departures())
            else:
                stream.run(pieces)
        return stream.rejected

    def _context(self, batch: Batch, run: BatchRun) -> Context:
        return Context(
            worker_index=self._service.worker_index,
            _batch=batch,
            _began=time.monotonic(),
            _names=self._apis[batch.api].description.headers,
            _departures=run.departures,
            recorded=run.calls.metrics,
        )


def _same(rows: Any) -> Any:
    """Stand for a stage that an API does not have."""
    return rows


def _copying(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let an async handler return arrays of its call's own, before the loop runs the next one."""

    async def call(rows: Any) -> Any:
        return copied(on_host(await handler(rows)))

    return call


def _in_turn(stages: Sequence[Stage]) -> Stage:
    """Return a function that runs all stages in the calling thread."""
    prepare, handler, finish = stages

    def call(rows: Any) -> Any:
        return finish(handler(prepare(rows)))

    return call
