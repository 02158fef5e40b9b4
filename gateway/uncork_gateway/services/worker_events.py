"""Handles events of worker processes, from the worker pool and the supervisor."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from uncork_gateway.backends.worker_connection import PoolEvent, WorkerConnection
from uncork_gateway.backends.worker_failures import WorkerFailures
from uncork_gateway.batching import Batching
from uncork_gateway.requests.batch_frames import result_of_row
from uncork_gateway.service_log import ServiceLog
from uncork_gateway.services.apis import Apis, GatewaySettings, Prepared
from uncork_gateway.services.memory_limits import MemoryLimits
from uncork_workers.wire.handshake import printable
from uncork_workers.wire.messages import Failed, Hello, Ready, WarmUp
from uncork_workers.wire.schema import ServiceDescription

# So many failures in a row are not chance; the log says so once.
_CRASH_LOOP = 5


class ServiceUnusable(Exception):
    """The service cannot be loaded, or its definition is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorActions:
    """The supervisor's methods that the gateway calls.

    Attributes:
        kill: ends the process with a launch; the supervisor replaces a process in service.
        restarts: returns the number of worker restarts so far.
        stands_by: reports a launch that is ready to take over.
        finished_batch: reports a launch that has finished a batch.
        connection_lost: reports a launch that has disconnected.
    """

    kill: Callable[[int], object]
    restarts: Callable[[], int]
    stands_by: Callable[[int], object] = lambda launch: None
    finished_batch: Callable[[int], object] = lambda launch: None
    connection_lost: Callable[[int], object] = lambda launch: None


class WorkerEvents:
    """Turns events of workers into changes of the dispatcher, the APIs and the log.

    Attributes:
        settings: the settings for workers that connect from now on.
        described: a future of the service with overrides, set by the first worker's description, or to
            :class:`ServiceUnusable` if the service cannot be served; cancelled if it is removed before that.
        files: the paths of all files that the service has ever imported.
        failures: why workers are not ready.
        on_joining_changed: called when a self-started worker has changed, or a launched one has come or gone.
        model: a digest of what batch times depend on, as the last ready worker has reported it: its code,
            device and libraries, and the settings of its APIs. Empty before the first.
        recall: given ``model``, returns the batch times (rows, seconds) of an earlier run, by API.

    Args:
        readiness_changed: called when the service may have become ready or not ready.
        code_changed: called when workers with another description serve.
    """

    def __init__(
        self,
        batching: Batching,
        apis: Apis,
        memory: MemoryLimits,
        supervisor: SupervisorActions,
        settings: GatewaySettings,
        *,
        readiness_changed: Callable[[], object],
        code_changed: Callable[[], object],
        log: ServiceLog,
    ) -> None:
        self.settings = settings
        self.log = log
        self._ready = batching.ready
        self._readiness_changed = readiness_changed
        self._code_changed = code_changed
        self._dispatcher = batching.dispatcher
        self._apis = apis
        self._memory = memory
        self._supervisor = supervisor
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        self.files: set[str] = set()
        self.failures = WorkerFailures(launches=settings.workers > 0)
        self.on_joining_changed: Callable[[], object] = lambda: None
        self.model = ""
        self.recall: Callable[[str], Mapping[str, Sequence[tuple[float, float]]]] = lambda model: {}
        self._logged_traceback = ""

    # What the supervisor reports

    def expect_workers(self, indexes: Iterable[int]) -> None:
        """Note that the supervisor starts the first processes of these workers."""
        for index in indexes:
            self._dispatcher.worker_expected(index, failures=0)

    def forget_workers(self, indexes: Iterable[int]) -> None:
        """Note that the supervisor has stopped these workers for good."""
        for index in indexes:
            self.failures.forget(index)
            self._memory.stopped(index)
            self._dispatcher.worker_not_expected(index)

    def worker_exited(self, index: int, how: str, *, failures: int = 0, retry_s: float = 0.0) -> None:
        """Note that a worker process has ended.

        ``failures`` counts consecutive processes of this index that ended without finishing a batch. The
        supervisor starts the next process in ``retry_s`` seconds.
        """
        self._dispatcher.worker_expected(index, delay_s=retry_s, failures=failures)
        unsaid = self.failures.exited(index, how, failures=failures, retry_s=retry_s)
        if unsaid is not None:
            self.log.warning("%s", unsaid)
        if failures == _CRASH_LOOP:
            self.log.error(
                "worker %d has exited %d times in a row before finishing a batch. The server keeps "
                "restarting it; fix the service, or stop the server",
                *(index, failures),
            )

    # What the worker pool reports

    def on_worker(self, worker: WorkerConnection, event: PoolEvent) -> None:
        match event:
            case "described":
                self._described(worker)
            case "joined":
                self._joined(worker)
            case WarmUp(api=api, rows=rows):
                assert worker.hello is not None
                self.failures.warming_up(worker.hello.index, api, rows)
            case "ready":
                self._use(worker)
            case Failed():
                is_held = worker.is_held and worker.is_launched
                self._cannot_serve(event, standby=worker.standby and not is_held)
            case "leaves":
                self._dispatcher.worker_retired(worker.key)
                self._readiness_changed()
            case "gone":
                self._gone(worker)
            case _:
                assert_never(event)
        if worker.hello is not None and (not worker.is_launched or event in ("leaves", "gone")):
            self.on_joining_changed()

    def _described(self, worker: WorkerConnection) -> None:
        assert worker.hello is not None
        if not worker.is_launched:
            return
        self.files.update(worker.hello.files)
        if not worker.standby:
            worker.standby = worker.is_held = True
            self.on_joining_changed()
            if worker.is_held and self._apis.service is not None:
                self._dispatcher.worker_not_expected(worker.hello.index)
                self.log.warning("%s", worker.slot(worker.hello).fault)

    def _joined(self, worker: WorkerConnection) -> None:
        assert worker.hello is not None
        self.failures.setting_up(worker.hello.index)
        if worker.is_launched and worker.ready is not None:
            # It was started to take over, not when the last process here died.
            self._dispatcher.worker_not_expected(worker.hello.index)

    def describe(self, service: ServiceDescription) -> bool:
        """Serve a description of a launched worker; return False and report why if that is impossible."""
        if service != self._apis.service:
            try:
                self.serve(service)
            except ValueError as error:
                self.unusable(str(error))
                return False
        return True

    def serve(self, service: ServiceDescription) -> None:
        """Serve the APIs of a service, with the current settings.

        Raises:
            ValueError: if the service cannot be served; nothing has changed then.
        """
        self.put_in_force(self._apis.prepare(service, self.settings))

    def put_in_force(self, prepared: Prepared) -> None:
        """Serve the APIs of a prepared service. This cannot fail."""
        if prepared.service != self._apis.service:
            self._code_changed()
        self._apis.put_in_force(prepared)
        self._readiness_changed()
        if not self.described.done():
            self.described.set_result(prepared.offer.service)

    def _use(self, worker: WorkerConnection) -> None:
        """Let the dispatcher use a worker, unless the worker is on standby or leaves."""
        if worker.is_retiring:
            return
        hello, ready = worker.hello, worker.ready
        assert hello is not None
        assert ready is not None
        if worker.is_launched:
            self.files.update(ready.files)
        if worker.standby:
            if not worker.is_held:
                self._supervisor.stands_by(worker.key)
            return
        self._recall(hello, ready)
        for api, chunks in ready.profile.items():
            if api in self._apis.in_force:
                self._dispatcher.profile(api, worker.key, chunks)
        for api, result in ready.results.items():
            if api in self._apis.outputs:
                self._apis.outputs[api].saw_warm_up(result_of_row(result))
        self._ready.set()
        self._readiness_changed()
        self.failures.ready(hello.index)
        if not worker.is_launched:
            self.log.info("worker %d on %s is ready", hello.index, printable(hello.host))
        self._dispatcher.worker_ready(worker.key, place=hello.index, host=hello.host, takes_ahead=True)
        self._memory.joined(worker.key, hello.index, ready.limits, self._apis.in_force, host=hello.host)

    def _recall(self, hello: Hello, ready: Ready) -> None:
        """Note the digest of the model; before the first batch, recall batch times of an earlier run."""
        is_first = not self.model
        apis = self._apis.in_force
        settings = [
            (name, one.settings.cost, one.settings.allowed_batch_sizes, one.settings.allowed_lengths)
            for name, one in sorted(apis.items())
        ]
        self.model = hashlib.sha256(repr((hello.code, ready.surroundings, settings)).encode()).hexdigest()
        if is_first:
            for api, learned in self.recall(self.model).items():
                if api in apis:
                    self._dispatcher.recall(api, learned)

    def _gone(self, worker: WorkerConnection) -> None:
        """Report the loss of a worker, so that its batches run again."""
        hello = worker.hello
        assert hello is not None
        if worker.ready is not None and not worker.standby:
            self._dispatcher.worker_lost(worker.key)
            if not worker.is_retiring:
                self._readiness_changed()
                if worker.is_launched:
                    # Its exit, with the delay of the next start, may be known later, or already.
                    self._dispatcher.worker_expected(hello.index)
                    self._supervisor.connection_lost(worker.key)
                else:
                    self.log.warning("worker %d on %s has disconnected", hello.index, printable(hello.host))
        if not worker.is_launched:
            self.failures.disconnected(hello.index)

    def _cannot_serve(self, failed: Failed, *, standby: bool) -> None:
        """Log why a worker cannot become ready, with each traceback of user code once."""
        who = "new worker" if standby else "worker"
        reason = f"{who} {failed.index} failed in {failed.stage}: {failed.message}"
        self.failures.failed(failed.index, reason, standby=standby)
        is_unusable = failed.stage == "load" and not standby
        if failed.traceback and failed.traceback != self._logged_traceback:
            self._logged_traceback = failed.traceback
            # The message is part of ServiceUnusable, which the caller prints.
            what = f"{who} {failed.index} failed in load" if is_unusable else reason
            self.log.error("%s\n%s", what, failed.traceback)
        elif not is_unusable:
            self.log.error("%s", reason)
        if is_unusable:
            self.unusable(failed.message)

    def unusable(self, message: str) -> None:
        """Fail the wait for the service; if the service is known already, only log the message."""
        if not self.described.done():
            self.described.set_exception(ServiceUnusable(message))
        elif not self.described.cancelled() and self.described.exception() is None:
            self.log.error("a worker started with a service that cannot be served: %s", message)
