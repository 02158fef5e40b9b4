"""Serve the batches of a service with ``prepare`` or ``finish``: stages of different batches overlap.

A thread reads batches and prepares each while the main thread runs the handler for the one before. Another
thread finishes batches and replies, in their order. A batch that has the worker to itself runs in the main
thread, because waking another thread takes as long as a fast model.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from msgspec.structs import replace

from uncork_dispatcher.learning.estimator import BatchTimeEstimator
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.batches.staged_run import StagedRun
from uncork_workers.process.children import WorkerCode
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch, Reply

# A model that calls many small operations gives up the GIL at each. With the default of 5 ms, it would wait
# that long for it each time while another thread runs Python code.
_SWITCH_INTERVAL_S = 0.0005
# Batches in a trial, and between two trials. The gateway sends the first few too late for an overlap.
_TRIAL = 8
_SETTLED = 500
# A trial of overlap that does not pay is repeated after twice as many, up to this many: it may be expensive.
_LONGEST = 8_000
PAYS = 0.95
"""Overlap pays if a batch then adds less than this share of its time without."""


@dataclass(slots=True)
class _Turn:
    """One batch; ``number`` counts those of the connection. It has a ``run`` if its stages may overlap."""

    number: int
    arrived: float
    batch: Batch
    bodies: list[bytes]
    run: StagedRun | None
    is_ahead: bool = False
    """Whether it was prepared while another batch ran."""
    is_called: bool = False
    answers: tuple[Reply, list[bytes]] | None = None


class OverlappingStages:
    """Serves the batches of one connection; ``due`` is as for :class:`ConcurrentBatches`."""

    def __init__(
        self,
        gateway: GatewayConnection,
        executor: Executor,
        due: list[float],
    ) -> None:
        self._gateway = gateway
        self._executor = executor
        self._overlaps = {api: Overlap() for api in executor.staged}
        self._due = due
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        """For the main thread; None: a thread has ended."""
        self._open: deque[_Turn] = deque()
        """The batches without a reply, in their order; the time of the first one runs."""
        self._finishing: SimpleQueue[_Turn | None] = SimpleQueue()
        self._repaired: SimpleQueue[None] = SimpleQueue()
        self._arrived = self._replied = 0
        self._last_ahead = -1
        """The number of the last batch that was prepared while another ran."""
        self._replied_at = 0.0
        self._replying = threading.Lock()
        """Held until a reply is on its way: both threads reply, and the gateway reads replies in order."""
        self._errors: list[BaseException] = []

    def serve(self) -> None:
        """Execute batches until the connection ends; raises as :meth:`ConcurrentBatches.serve`."""
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._gateway.share(in_order=True)
        threads = [
            threading.Thread(target=self._run_thread, args=(target,), name=f"uncork {name}", daemon=True)
            for name, target in (("prepare", self._read), ("finish", self._finish))
        ]
        for thread in threads:
            thread.start()
        try:
            self._call_handlers(threads)
        finally:
            self._gateway.stop_reading()
            self._finishing.put(None)
            self._repaired.put(None)

    def _call_handlers(self, threads: list[threading.Thread]) -> None:
        ended = 0
        while ended < len(threads):
            turn = self._turns.get()
            if turn is None:
                if self._errors:
                    raise self._errors[0]
                ended += 1
                self._finishing.put(None)
            elif turn.run is not None and turn.run.error is not None and turn.is_called:
                self._answer_parts(turn, turn.run)
                self._repaired.put(None)
            else:
                self._execute(turn)

    def _execute(self, turn: _Turn) -> None:
        """Call the handler for a batch, and answer it if nothing else runs."""
        turn.is_called = True
        run = turn.run
        if run is None:
            with WorkerCode():
                turn.answers = self._executor.run(turn.batch, turn.bodies)
        else:
            run.call()
            if run.error is not None:
                self._answer_parts(turn, run)
        is_done = run is None or turn.answers is not None
        may_finish = is_done or self._arrived == turn.number + 1 or not self._overlaps_now(turn)
        if self._replied == turn.number and may_finish:
            if run is not None and not is_done:
                run.finish()
                if run.error is not None:
                    self._answer_parts(turn, run)
            self._reply(turn)
        else:
            self._finishing.put(turn)

    def _answer_parts(self, turn: _Turn, run: StagedRun) -> None:
        run.answer_parts()
        turn.answers = run.reply(), run.bodies

    def _read(self) -> None:
        """Read batches; prepare those behind another with stages."""
        behind: StagedRun | None = None
        for batch, bodies in self._gateway.batches():
            run = self._executor.in_stages(batch, bodies)
            turn = _Turn(self._arrived, time.perf_counter(), batch, bodies, run)
            self._open.append(turn)
            if self._open[0] is turn:
                self._limit_time(turn)
            self._arrived += 1
            # Not behind a batch without stages: it could become slower, and nothing would notice.
            if (
                run is not None
                and behind is not None
                and self._replied < turn.number
                and self._overlaps_now(turn)
            ):
                behind.prepared.wait()
                turn.is_ahead = True
                self._last_ahead = turn.number
                run.prepare()
            behind = run
            self._turns.put(turn)

    def _limit_time(self, turn: _Turn) -> None:
        """Begin the time of a batch. Two threads may do so for one; its reply ends both."""
        self._due.append(time.monotonic() + turn.batch.timeout_s)

    def _overlaps_now(self, turn: _Turn) -> bool:
        return self._overlaps[turn.batch.api].is_on

    def _finish(self) -> None:
        """Finish batches, and reply to all in their order."""
        while (turn := self._finishing.get()) is not None:
            if turn.run is not None and turn.answers is None:
                turn.run.finish()
                if turn.run.error is not None:  # only the main thread may call the handler again
                    self._turns.put(turn)
                    self._repaired.get()
                    if turn.answers is None:  # the main thread has ended
                        return
            self._reply(turn)

    def _reply(self, turn: _Turn) -> None:
        reply, bodies = turn.answers or (turn.run.reply(), turn.run.bodies)  # type: ignore[union-attr]
        with self._replying:
            now = time.perf_counter()
            seconds = now - max(turn.arrived, self._replied_at)
            self._observe(turn, reply, seconds)
            self._replied_at = now
            self._open.popleft()
            self._due.clear()
            if self._open:
                self._limit_time(self._open[0])
            self._replied += 1
            overlaps = turn.run is not None and self._overlaps_now(turn)
            self._gateway.reply(replace(reply, seconds=seconds, overlaps=overlaps), bodies)

    def _observe(self, turn: _Turn, reply: Reply, seconds: float) -> None:
        """Learn what overlap does to the time that a batch takes."""
        overlap = self._overlaps.get(turn.batch.api)
        if overlap is not None and reply.worked and len(reply.chunks) == 1:
            has_overlapped = turn.is_ahead or self._last_ahead > turn.number
            overlap.observe(reply.chunks[0][0], seconds, has_overlapped=has_overlapped)

    def _run_thread(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._turns.put(None)


class Overlap:
    """Decides for one API, by measurement, whether it pays that the stages of its batches overlap.

    It does not where the stages wait for each other, as Python code does for the GIL: a model of many small
    operations then takes several times as long. So this compares the time that a batch adds to the work of
    the worker with overlap and without, now and then.

    Attributes:
        is_on: whether the next batch should overlap with others.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._pays: bool | None = None
        """The last verdict; None before the first."""
        self._left = _TRIAL
        self._settled = _SETTLED
        self._times = {False: BatchTimeEstimator(), True: BatchTimeEstimator()}

    def observe(self, cost: float, seconds: float, *, has_overlapped: bool) -> None:
        """Learn that a batch of some rows or cost added some seconds to the work of the worker."""
        self._times[has_overlapped].observe(cost, seconds)
        if has_overlapped is not self.is_on:
            return
        self._left -= 1
        if self._left:
            return
        if self.is_on is not self._pays and self._times[True].known_rows is not None:
            self._judge(cost)
        else:
            self.is_on, self._left = not self.is_on, _TRIAL

    def _judge(self, cost: float) -> None:
        """Compare both at the size of the last batch, after a trial."""
        with_overlap, without = (self._times[way].estimate.seconds(cost) for way in (True, False))
        pays = with_overlap < PAYS * without
        is_repeated = self._pays is False and not pays
        self._settled = min(2 * self._settled, _LONGEST) if is_repeated else _SETTLED
        self._pays = self.is_on = pays
        self._left = self._settled
