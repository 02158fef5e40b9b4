"""Puts the parts of the gateway together: workers' sockets, dispatcher, routes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from uncork_dispatcher import ApiStats, AsyncDispatcher, BatchResult, Job, OnBatchEnd, WorkerLost
from uncork_gateway.apis import Apis, GatewaySettings
from uncork_gateway.backends.worker_connection import Executed
from uncork_gateway.backends.worker_failures import Start, Troubles
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.codecs import Marshalled
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.errors import Unavailable
from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.pages.service import ServicePages
from uncork_gateway.pages.status.document import Failure
from uncork_gateway.pages.status.failures import Failures
from uncork_gateway.pages.status.formatting import SERVICE
from uncork_gateway.pages.status.places import Place
from uncork_gateway.pages.status.recorder import Recorder
from uncork_gateway.pages.status.status_builder import Board, Shown
from uncork_gateway.requests.batch_frames import from_frame, result_of_row, to_frame
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.telemetry.metrics import ApiTally, LiveState, Metrics
from uncork_workers.wire.frames import Failed, Ready
from uncork_workers.wire.schema import ServiceDescription

log = logging.getLogger("uncork.gateway")

# A worker that was told to go, because another has taken over, does so in a moment unless something is stuck.
_LEAVING_S = 10.0
# So many deaths in a row are not chance; the log says so once.
_CRASH_LOOP = 5


class ServiceUnusable(Exception):
    """The service can never be served as it is: it cannot be loaded, or is defined wrongly."""


class Gateway:
    """The front end of one service. Make it inside a running event loop.

    Args:
        settings: what is in force.
        kill_worker: ends a worker process by its number; if it is in force, another is started then.
        restarts: how many workers have been started again so far.
        stands_by: told the number of a worker process that is ready to take over.
        finished_batch: told the number of a worker process for each batch that it has answered.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        kill_worker: Callable[[int], None],
        restarts: Callable[[], int],
        stands_by: Callable[[int], object] = lambda pid: None,
        finished_batch: Callable[[int], object] = lambda pid: None,
    ) -> None:
        self._kill_worker = kill_worker
        self._restarts = restarts
        self._stands_by = stands_by
        self._finished_batch = finished_batch
        self._pool = WorkerPool(self)
        self._metrics = Metrics()
        self._batch_head = BatchHead(secrets.token_hex(4))
        self._traces = settings.traces
        self._failures = Failures(show_messages=settings.admin)
        recorder = Recorder(
            self._metrics,
            sample=lambda api: self._dispatcher.sample(api),
            index_of=self._pool.index_of,
        )
        self._dispatcher: AsyncDispatcher[Marshalled, RowsReply] = AsyncDispatcher(
            self, observers=(recorder, *settings.observers(self._metrics, self._batch_head))
        )
        self.board = Board(self, dispatcher=self._dispatcher, recorder=recorder, names=SERVICE)
        self._metrics.registry.register(
            LiveState(apis=self._stats, workers=self._pool.states, restarts=restarts)
        )
        self._apis = Apis(
            settings, dispatcher=self._dispatcher, metrics=self._metrics, batch_head=self._batch_head
        )
        self.draining = False
        self._troubles = Troubles()
        self.why_no_standby = self._troubles.why_no_standby
        """Why the worker of an index that was to take over could not, if it has said so."""
        self._shown_traceback = ""
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        """Done when the first worker has said what it serves; :class:`ServiceUnusable` if it cannot."""
        self.ready = asyncio.Event()
        """Set when the first worker takes batches."""
        self.files: set[str] = set()
        """Paths of the files of which the service consists, or did at some time."""
        pages = ServicePages(self, settings)
        self.app, self.admin_app, self._end_pages = pages.app, pages.admin_app, pages.close

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection, for uvicorn: hot routes, and for all else :attr:`app`."""
        return HttpProtocol(self._apis.hot, **uvicorn)

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Wait for workers on a Unix socket; those on a ``standby`` one wait there for :meth:`take_over`."""
        await self._pool.listen(socket_path, standby=standby)

    def take_over(self, pids: Collection[int]) -> set[int]:
        """Have worker processes that stand by take the places of those of the same indexes.

        What they serve is in force then. The old ones get no more batches, and are told to go when what they
        run has ended. Returns the processes of those that had been ready.

        Raises:
            ValueError: if one of the new workers has gone, they differ in what they serve from each other or
                from workers that stay, or it cannot be served; nothing has changed then.
        """
        first, *rest = self._pool.standbys(pids)
        if any(service != first for service in rest):
            raise ValueError("the new workers differ in what they serve")
        are_all = not self._pool.any_left_by(pids)
        if first != self.service and not are_all:
            raise ValueError("it does not serve what the other workers serve; all need a reload")
        if are_all:
            # Also for an unchanged description: new code may return other outputs, which are learned anew.
            self._serve(first)
        return self._pool.take_over(pids)

    async def attach(self, connected: socket.socket) -> None:
        """Take a socket at whose other end is a worker already."""
        await self._pool.attach(connected)

    def retire(self) -> None:
        """Have /readyz say no from now on; requests are taken all the same."""
        self.draining = True

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered.

        Connections are closed with the next answer on them.
        """
        self.retire()
        self._apis.hot.closing = True
        await self._dispatcher.drain()
        self._end_pages()

    def unanswered(self) -> int:
        """How many requests are held or run."""
        return self._dispatcher.unanswered

    def give_up(self) -> None:
        """Refuse what has not been answered yet."""
        self._dispatcher.give_up()
        self._end_pages()

    async def close(self) -> None:
        """Let the workers go."""
        await self._pool.close()
        self._dispatcher.close()

    # What the pages tell

    @property
    def service(self) -> ServiceDescription | None:
        """As the workers say it; None until one has said it."""
        return self._apis.service

    @property
    def server(self) -> str | None:
        """The name of the service; None until a worker has said it."""
        return None if self.service is None else self.service.name

    @property
    def restarts(self) -> int:
        """Workers that were started again."""
        return self._restarts()

    def shown(self) -> dict[str, Shown]:
        """The apis that are in force."""
        return {
            name: Shown(api.route, weighs=api.settings.cost is not None, streams=api.streams)
            for name, api in self._apis.in_force.items()
        }

    def failure(self, api: str) -> Failure | None:
        """The exception that the handler of an api raised last; its message only with an admin port."""
        return self._failures.last(api)

    def places(self) -> list[Place]:
        """The workers that are connected, and those that have ended and are not ready again."""
        missing = self._troubles.missing()
        places = []
        for one in self._pool.workers():
            died, fault = missing.pop(one.index, ""), ""
            if one.standby:
                fault = "gets ready to take over"
            elif one.state == "starting":
                fault = died or "is being set up"
            places.append(Place(one.index, one.state, number=one.worker, pid=one.pid, fault=fault))
        places += [Place(index, "lost", fault=fault) for index, fault in missing.items()]
        return sorted(places, key=lambda place: place.index)

    @property
    def models(self) -> Mapping[str, Model]:
        """By name."""
        return self._apis.models

    @property
    def any_ready(self) -> bool:
        """Whether a worker takes batches."""
        return self._pool.any_ready

    def tally(self, api: str) -> ApiTally:
        """What is counted of an api."""
        return self._metrics.api(api)

    def api_paths(self) -> list[str]:
        """The paths at which requests for batches are taken, those of the service's own routes first."""
        return [path.decode() for path in self._apis.hot.handlers]

    def render_metrics(self) -> bytes:
        """All that is counted, for Prometheus."""
        return self._metrics.render()

    @property
    def trouble(self) -> str:
        """Why no worker is ready, if none is."""
        return f"no worker is ready: {self._troubles.text()}"

    def starts(self) -> dict[int, Start]:
        """What the workers do that are not ready, by index; nothing is known of one that imports its code."""
        return self._troubles.starts()

    def ready_workers(self) -> set[int]:
        """The indexes of the workers that take batches."""
        return self._pool.ready()

    def expect_workers(self, workers: int) -> None:
        """Note that the supervisor starts the first processes of so many workers now."""
        for index in range(workers):
            self._dispatcher.worker_expected(index)

    def worker_exited(self, index: int, how: str, *, failures: int = 0, retry_s: float = 0.0) -> None:
        """The supervisor's word on a worker process that ended; /readyz tells it when none is left.

        ``failures`` is how often in a row the worker has ended without having finished a batch, ``retry_s``
        when it is started again.
        """
        self._dispatcher.worker_expected(index, delay_s=retry_s, failures=failures)
        unsaid = self._troubles.exited(index, how, failures=failures, retry_s=retry_s)
        if unsaid is not None:
            log.warning("%s", unsaid)
        if failures == _CRASH_LOOP:
            log.error(
                "worker %d has ended %d times in a row before its first batch was done. It is tried again "
                "all the time; mend the service, or stop the server",
                *(index, failures),
            )

    def _stats(self) -> list[ApiStats]:
        """Of the apis that are in force; the dispatcher knows all that ever were."""
        return [api for api in self._dispatcher.stats() if api.name in self._apis.in_force]

    # The pool's listener

    def worker_imported(self, files: list[str]) -> None:
        """Note what to watch."""
        self.files.update(files)

    def worker_described(self, service: ServiceDescription) -> None:
        """Put the apis of a worker in force, if they are not the ones that are."""
        if service == self.service:
            return
        try:
            self._serve(service)
        except ValueError as error:
            self._unusable(str(error))

    def worker_connected(self, index: int) -> None:
        """Note since when it is in setup."""
        self._troubles.setting_up(index)

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        """Note what it does."""
        self._troubles.warming_up(index, api, rows)

    def batch_finished(self, pid: int) -> None:
        """Tell the supervisor, which counts them."""
        self._finished_batch(pid)

    def worker_dropped(self, pid: int) -> None:
        """End it: what it does is not to be trusted."""
        self._kill_worker(pid)

    def worker_ready(self, worker: int, index: int) -> None:
        """Give it batches."""
        self.ready.set()
        self._troubles.ready(index)
        self._dispatcher.worker_ready(worker, launch=index)

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        """Teach the estimate and the outputs of the apis in force what the warm-up showed."""
        for api, chunks in ready.profile.items():
            if api in self._apis.in_force:
                self._dispatcher.profile(api, worker, chunks)
        for api, result in ready.results.items():
            if api in self._apis.outputs:
                self._apis.outputs[api].saw_results([result_of_row(result)])

    def worker_lost(self, worker: int, index: int) -> None:
        """Have its batch run elsewhere; the supervisor will start the worker of this index again."""
        self._dispatcher.worker_lost(worker)
        self._dispatcher.worker_expected(index)

    def worker_stands_by(self, pid: int) -> None:
        """Tell the supervisor, which will have it take over together with others."""
        self._stands_by(pid)

    def worker_retired(self, pid: int) -> None:
        """See to it that it goes."""
        asyncio.get_running_loop().call_later(_LEAVING_S, self._kill_worker, pid)

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """Say why, with the traceback of the user's code once per reason."""
        who = "new worker" if standby else "worker"
        reason = f"{who} {failed.index} failed in {failed.stage}: {failed.message}"
        self._troubles.failed(failed.index, reason, standby=standby)
        is_unusable = failed.stage == "load" and not standby
        if failed.traceback and failed.traceback != self._shown_traceback:
            self._shown_traceback = failed.traceback
            # The caller that waits for the service prints the message.
            what = f"{who} {failed.index} failed in load" if is_unusable else reason
            log.error("%s\n%s", what, failed.traceback)
        elif not is_unusable:
            log.error("%s", reason)
        if is_unusable:
            self._unusable(failed.message)

    def _unusable(self, message: str) -> None:
        """The first worker's word decides; one that comes up later is only reported."""
        if not self.described.done():
            self.described.set_exception(ServiceUnusable(message))
        elif self.described.exception() is None:
            log.error("a worker came up with a service that cannot be served: %s", message)

    def _serve(self, service: ServiceDescription) -> None:
        effective = self._apis.put_in_force(service)
        if not self.described.done():
            self.described.set_result(effective)

    # The dispatcher's runner

    def start(self, job: Job[Marshalled], ended: OnBatchEnd[RowsReply]) -> None:
        """Have a worker run a batch."""
        start, sink = job.start, job.payloads[0].sink
        api = self._apis.in_force.get(start.api)
        if api is None or api.streams != (sink is not None):
            raise Unavailable("this api was removed while the request was queued", retry_after_s=1)
        batch_id = self._batch_head.id_of(start.batch)
        trace = None if self._traces is None else self._traces.begin_batch(self._batch_head, job)
        batch, bodies = to_frame(job, api.settings, batch_id=batch_id, trace=trace)
        on_piece = None if sink is None else sink.piece
        outputs = self._apis.outputs.get(start.api)

        def done(outcome: Executed | WorkerLost) -> None:
            ran = from_frame(job, outcome)
            ended(ran)
            if isinstance(outcome, Executed):
                self._failures.note(start.api, outcome.reply.raised)
            if outputs is not None and isinstance(ran, BatchResult):
                outputs.saw_results(ran.results)

        self._pool.execute(start.worker, batch, bodies, done, on_piece=on_piece)
        if sink is not None:
            sink.started(start.batch, partial(self._pool.cancel, start.batch))

    def abandon(self, batch: int, worker: int) -> None:
        """End a worker that hangs."""
        hello = self._pool.runner_of(batch)
        if hello is not None:
            log.error("worker %d ran a batch past its timeout and is killed", hello.index)
            self._kill_worker(hello.pid)
