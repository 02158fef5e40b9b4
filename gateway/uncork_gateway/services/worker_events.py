"""Events of worker processes, as the worker pool and the supervisor report them."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from uncork_gateway.backends.worker_failures import WorkerFailures
from uncork_gateway.batching import Batching
from uncork_gateway.requests.batch_frames import result_of_row
from uncork_gateway.service_log import ServiceLog
from uncork_gateway.services.apis import Apis, GatewaySettings, Prepared
from uncork_workers.wire.messages import Failed, Hello, Ready
from uncork_workers.wire.schema import ServiceDescription

# A worker whose successor has taken over exits at once unless it hangs.
_LEAVING_S = 10.0
# So many failures in a row are not chance; the log says so once.
_CRASH_LOOP = 5


class ServiceUnusable(Exception):
    """The service cannot be loaded, or its definition is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorActions:
    """The supervisor's methods that the gateway calls.

    Attributes:
        kill: ends the process of a launch; the supervisor starts another if it is in force.
        restarts: returns how many workers have been restarted so far.
        stands_by: reports a launch whose process is ready to take over.
        finished_batch: reports a launch whose process has finished a batch.
        connection_lost: reports a launch whose process is not connected any more.
    """

    kill: Callable[[int], object]
    restarts: Callable[[], int]
    stands_by: Callable[[int], object] = lambda launch: None
    finished_batch: Callable[[int], object] = lambda launch: None
    connection_lost: Callable[[int], object] = lambda launch: None


class WorkerEvents:
    """Turns events of workers into changes of the dispatcher, the APIs and the log.

    Attributes:
        log: names the service where there are several.
        settings: with which workers are served that connect from now on.
        described: the service, with the overrides, once the first worker has described it;
            :class:`ServiceUnusable` if it cannot be served.
        files: paths of the files that the service has imported at any time.
        failures: why workers are not ready.
        on_joining_changed: called when a worker that the supervisor did not launch has changed, or one that
            it launched has brought another service.

    Args:
        readiness_changed: called when the service may have become ready, or the contrary.
    """

    def __init__(
        self,
        batching: Batching,
        apis: Apis,
        supervisor: SupervisorActions,
        settings: GatewaySettings,
        *,
        readiness_changed: Callable[[], object],
        log: ServiceLog,
    ) -> None:
        self.settings = settings
        self.log = log
        self._ready = batching.ready
        self._readiness_changed = readiness_changed
        self._dispatcher = batching.dispatcher
        self._apis = apis
        self._supervisor = supervisor
        self.described: asyncio.Future[ServiceDescription] = asyncio.get_running_loop().create_future()
        self.files: set[str] = set()
        self.failures = WorkerFailures(launches=settings.workers > 0)
        self.on_joining_changed: Callable[[], object] = lambda: None
        self._logged_traceback = ""

    # What the supervisor reports

    def expect_workers(self, indexes: Iterable[int]) -> None:
        """Note that the supervisor starts the first processes of these workers."""
        for index in indexes:
            self._dispatcher.worker_expected(index)

    def forget_workers(self, indexes: Iterable[int]) -> None:
        """Note that the supervisor has stopped these workers for good."""
        for index in indexes:
            self.failures.forget(index)
            self._dispatcher.worker_not_expected(index)

    def worker_exited(self, index: int, how: str, *, failures: int = 0, retry_s: float = 0.0) -> None:
        """Note that a worker process has ended.

        ``failures`` counts the processes of this index that ended in a row without finishing a batch. The
        supervisor starts the next one in ``retry_s`` seconds.
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

    def worker_imported(self, files: list[str]) -> None:
        self.files.update(files)

    def worker_described(self, service: ServiceDescription) -> None:
        if service == self._apis.service:
            return
        try:
            self.serve(service)
        except ValueError as error:
            self.unusable(str(error))
        else:
            self.on_joining_changed()

    def serve(
        self,
        service: ServiceDescription,
        settings: GatewaySettings | None = None,
        *,
        same_code: bool = False,
    ) -> None:
        """Put the APIs of a service in force; by default with the settings in force.

        Raises:
            ValueError: if it cannot be served; nothing has changed then.
        """
        self.put_in_force(self._apis.prepare(service, settings or self.settings, same_code=same_code))

    def put_in_force(self, prepared: Prepared) -> None:
        """Put the APIs of a service in force; this cannot fail."""
        self._apis.put_in_force(prepared)
        self._readiness_changed()
        if not self.described.done():
            self.described.set_result(prepared.offer.service)

    def worker_connected(self, index: int) -> None:
        self.failures.setting_up(index)

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        self.failures.warming_up(index, api, rows)

    def worker_ready(self, worker: int, hello: Hello, *, takes_ahead: bool = True) -> None:
        self._ready.set()
        self._readiness_changed()
        self.failures.ready(hello.index)
        if hello.launch is None:
            self.log.info("worker %d on %s is ready", hello.index, hello.host)
        self._dispatcher.worker_ready(worker, launch=hello.index, host=hello.host, takes_ahead=takes_ahead)

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        """Feed the results of the warm-up to the estimates and the known outputs."""
        for api, chunks in ready.profile.items():
            if api in self._apis.in_force:
                self._dispatcher.profile(api, worker, chunks)
        for api, result in ready.results.items():
            if api in self._apis.outputs:
                self._apis.outputs[api].saw_warm_up(result_of_row(result))

    def worker_lost(self, worker: int, hello: Hello) -> None:
        """Have the worker's batch repeated. The supervisor restarts processes that it launched."""
        self._dispatcher.worker_lost(worker)
        self._readiness_changed()
        if hello.launch is not None:
            self._dispatcher.worker_expected(hello.index)
            self._supervisor.connection_lost(hello.launch)
        else:
            self.log.warning("worker %d on %s has disconnected", hello.index, hello.host)

    def worker_leaves(self, worker: int) -> None:
        self._dispatcher.worker_retired(worker)
        self._readiness_changed()

    def worker_gone(self, index: int) -> None:
        self.failures.disconnected(index)

    def joining_changed(self) -> None:
        self.on_joining_changed()

    def batch_finished(self, launch: int) -> None:
        self._supervisor.finished_batch(launch)

    def worker_dropped(self, launch: int) -> None:
        self._supervisor.kill(launch)

    def worker_stands_by(self, launch: int) -> None:
        self._supervisor.stands_by(launch)

    def worker_retired(self, launch: int) -> None:
        asyncio.get_running_loop().call_later(_LEAVING_S, self._supervisor.kill, launch)

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
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
        """End the wait for the service; once the service is known, only log the message."""
        if not self.described.done():
            self.described.set_exception(ServiceUnusable(message))
        elif self.described.exception() is None:
            self.log.error("a worker started with a service that cannot be served: %s", message)
