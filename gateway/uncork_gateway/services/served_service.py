"""A service of a gateway: its APIs, worker pool and dispatcher."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from uncork_dispatcher import Batch, OnBatchEnd, Submission
from uncork_gateway.backends.worker_connection import Executed
from uncork_gateway.backends.worker_listener import WorkerListener, WorkerPort
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.batching import Batching
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import Unavailable
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.pages.status.failures import Failures
from uncork_gateway.requests.batch_frames import from_frame, to_frame
from uncork_gateway.service_log import ServiceLog
from uncork_gateway.services.apis import Apis, GatewaySettings, Prepared
from uncork_gateway.services.catalogue import Catalogue
from uncork_gateway.services.joining import Joining
from uncork_gateway.services.lethal_batches import LethalBatches
from uncork_gateway.services.memory_limits import MemoryLimits
from uncork_gateway.services.scaling import Scaling
from uncork_gateway.services.view import ServiceView, gpu_gauges
from uncork_gateway.services.worker_events import SupervisorActions, WorkerEvents
from uncork_workers.wire.schema import ServiceDescription


class Change(NamedTuple):
    """A checked change of a service, which cannot fail.

    Attributes:
        settings: the new settings; None if unchanged.
        prepared: the new APIs; None if unchanged, or not described yet.
        removed: the current APIs that the change removes.
    """

    settings: GatewaySettings | None
    prepared: Prepared | None
    removed: frozenset[str] = frozenset()


class ServedService:
    """A service behind a gateway's front end. Create it inside a running event loop.

    Args:
        front_end: the front end, to which the service must be added.
        name: the name to serve it under, with which its APIs' ids begin; None: its class's name, in lower
            case.

    Attributes:
        lethal: finds batches that kill workers.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        catalogue: Catalogue,
        settings: GatewaySettings,
        supervisor: SupervisorActions,
        *,
        name: str | None = None,
    ) -> None:
        self._traces = settings.traces
        self._failures = Failures(show_messages=settings.admin)
        self.view = ServiceView(
            self._failures,
            restarts=supervisor.restarts,
            startup_s=lambda: self.batching.dispatcher.startup_s,
        )
        self.lethal = LethalBatches(
            lambda worker: self.pool.index_of(worker), lambda *case: self._memory.killed(*case)
        )
        self.batching = Batching(
            self.view,
            self,
            name=name or "",
            prefix="" if name is None else f"{name}/",
            batches=front_end.batches,
            bursts=front_end.listener.bursts,
            traces=settings.traces,
            index_of=lambda worker: self.pool.index_of(worker),
            observers=[self.lethal],
        )
        self._apis = Apis(
            self.batching, catalogue, name=name, unready=lambda: front_end.unready_of(self.batching)
        )
        log = ServiceLog(name or "")
        self._memory = MemoryLimits(self.batching, log, lambda api: self._apis.weighs(api))
        self.events = WorkerEvents(
            self.batching,
            self._apis,
            self._memory,
            supervisor,
            settings,
            readiness_changed=front_end.readiness_changed,
            code_changed=self._code_changed,
            log=log,
        )
        self.pool = WorkerPool(
            self.events.on_worker,
            log=log,
            kill=supervisor.kill,
            finished_batch=supervisor.finished_batch,
            reserved=settings.workers,
        )
        self.batching.collectors.append(lambda: gpu_gauges(self.pool.slots()))
        self._joining = Joining(
            self.pool, self._apis, self.events, is_from_zero=lambda: self.view.is_from_zero
        )
        self.events.on_joining_changed = self._joining.reconsider
        self._listener: WorkerListener | None = None
        self.view.show(self._apis, self.pool, self.events)

    def listen_on_tcp(self, port: WorkerPort) -> None:
        """Accept workers that know the token on a TCP port."""
        refused = Counter(
            "uncork_worker_connections_refused",
            "Connections to the worker port that were refused, by reason.",
            ["reason"],
            registry=None,
        )
        self.batching.collectors.append(refused.collect)
        self._listener = WorkerListener(
            self.pool,
            port,
            overrides=self.events.settings.overrides,
            warmup_seconds=self.events.settings.warmup_seconds,
            on_refusal=lambda reason: refused.labels(reason).inc(),
        )
        self._listener.listen()

    def follow_traffic(
        self,
        *,
        least: int,
        most: int,
        idle_after_s: float = math.inf,
        target: Callable[[], int] | None = None,
        resize: Callable[[int], Awaitable[None]] | None = None,
        is_replacing: Callable[[], bool] = lambda: False,
    ) -> Scaling:
        """Return the autoscaler, which metrics and pages show too.

        ``target`` returns the target number of workers, by default the number that run; ``resize`` changes
        it.
        """

        def ready() -> int:
            return len(self.pool.ready()) + (0 if target is None else len(self.pool.held()))

        scaling = Scaling(
            self.batching.dispatcher,
            apis=lambda: self._apis.in_force,
            ready=ready,
            target=target or ready,
            resize=resize,
            least=least,
            most=most,
            idle_after_s=idle_after_s,
            is_replacing=is_replacing,
            log=self.events.log,
        )
        self.view.current_scaling = scaling
        wanted = Gauge("uncork_workers_wanted", "Workers that the traffic needs.", registry=None)
        wanted.set_function(lambda: scaling.wanted)
        self.batching.collectors.append(wanted.collect)
        return scaling

    def prepare(self, settings: GatewaySettings) -> Change:
        """Return a change to new settings, which apply at once, also to queued requests; workers stay.

        Raises:
            ValueError: if the service cannot be served with these settings.
        """
        service = self.service
        prepared = None if service is None else self._apis.prepare(service, settings, same_code=True)
        return Change(settings, prepared)

    def change(self, change: Change) -> None:
        """Apply a prepared change. This cannot fail."""
        if change.prepared is not None:
            self.events.put_in_force(change.prepared)
        if change.settings is not None:
            self._changed(change.settings)

    def _changed(self, settings: GatewaySettings) -> None:
        self.events.settings = settings
        self.pool.reserve(settings.workers)
        if self._listener is not None:
            self._listener.change(settings.overrides, settings.warmup_seconds)
        self._joining.settings_changed()

    def prepare_take_over(self, launches: Collection[int], settings: GatewaySettings | None = None) -> Change:
        """Return the change for :meth:`take_over`, with new settings if given.

        Raises:
            ValueError: if a new worker has gone, the new workers describe different services or differ from
                workers that stay, or the service cannot be served.
        """
        first, *rest = self.pool.standbys(launches)
        if any(service != first for service in rest):
            raise ValueError("the new workers describe different services")
        are_all = not self.pool.any_left_by(launches)
        if first != self.service and not are_all:
            raise ValueError("the service has changed, so all workers must be reloaded together")
        if not are_all and settings is None:
            return Change(None, None)
        # Also for an unchanged description: new code may return other outputs, which are learned anew.
        prepared = self._apis.prepare(first, settings or self.events.settings)
        return Change(settings, prepared, frozenset(self._apis.in_force.keys() - prepared.rules.keys()))

    async def withdraw(self, apis: Collection[str], *, timeout_s: float) -> None:
        """Reject new requests to some APIs; return when none is queued, or after ``timeout_s``."""
        self._apis.withdraw(apis)
        waiting = asyncio.create_task(self.batching.dispatcher.queue_empty(apis))
        await asyncio.wait([waiting], timeout=timeout_s)
        waiting.cancel()

    def restore(self) -> None:
        """Accept requests to the withdrawn APIs again, unless the service's APIs have changed since."""
        self._apis.withdraw(())

    def take_over(self, launches: Collection[int], change: Change | None = None) -> set[int]:
        """Replace workers with standby processes of the same indexes, and serve the new workers' service.

        The old workers exit after their current batch. Return the launches of the old workers that were
        ready.

        Raises:
            ValueError: as :meth:`prepare_take_over`, unless ``change`` is its result.
        """
        settings, prepared, _ = change or self.prepare_take_over(launches)
        if change is not None:
            self._code_changed()
        if prepared is not None:
            self.events.put_in_force(prepared)
        replaced = self.pool.take_over(launches, renewed=change is not None)
        if settings is not None:
            self._changed(settings)
        else:
            self._joining.reconsider()
        return replaced

    def _code_changed(self) -> None:
        """Forget how large batches may be, and which names of metrics are counted."""
        self._memory.forget_all()
        self.lethal.code_changed()
        self.batching.handler_metrics.code_changed()

    async def close(self) -> None:
        """Disconnect the workers. The supervisor's workers exit; others reconnect."""
        # While connections close one after the other, a standby must not take over.
        self.events.on_joining_changed = lambda: None
        if self._listener is not None:
            self._listener.close()
        await self.pool.close()

    # The dispatcher's runner

    def start(
        self, batch: Batch[Submission[Marshalled, HandlerResult]], ended: OnBatchEnd[HandlerResult]
    ) -> None:
        asked = batch.requests[0].payload
        api, sink = self._apis.in_force.get(batch.api), asked.sink
        if api is None or asked.contract != self._apis.contracts[batch.api]:
            how = "removed" if api is None else "replaced"
            raise Unavailable(f"this API was {how} while the request was queued", reason="api_removed")
        batch_id = self.batching.batch_headers.id_of(batch.number)
        index = self.pool.index_of(batch.worker)
        trace = None if self._traces is None else self._traces.begin_batch(batch_id, batch, worker=index)
        fits = self._memory.of(batch.api, index)
        frame, bodies = to_frame(
            batch, api.settings, batch_id=batch_id, trace=trace, fits=fits, has_headers=bool(api.headers)
        )
        on_piece = None if sink is None else sink.piece
        outputs = self._apis.outputs.get(batch.api)

        def done(outcome: Executed) -> None:
            ran, reply = from_frame(batch, outcome), outcome.reply
            ended(ran)
            if reply.limit != fits or reply.memory_failures:
                self._memory.learn(batch.worker, index, batch.api, reply.limit, reply.memory_failures)
            if reply.counts or reply.observed or reply.dropped_metrics:
                self.batching.handler_metrics.add(batch.api, reply)
            if reply.exceptions:
                self._failures.note(batch.api, reply.exceptions)
            if outputs is not None:
                outputs.saw_results(ran.results)

        self.pool.execute(batch.worker, frame, bodies, done, on_piece=on_piece)
        if sink is not None:
            sink.started(batch.number)

    def cancel(
        self,
        batch: Batch[Submission[Marshalled, HandlerResult]],
        requests: Collection[Submission[Marshalled, HandlerResult]],
    ) -> None:
        """Tell the worker whose clients have left, for a batch that it runs now or next."""
        gone = set(requests)
        self.pool.cancel(
            batch.worker,
            batch.number,
            [at for at, request in enumerate(batch.requests) if request in gone],
        )

    def abandon(self, batch: int, worker: int) -> None:
        """Drop a worker that has run a batch past its timeout."""
        index = self.pool.abandon(batch)
        if index is not None:
            self.events.log.error("dropped worker %d: its batch exceeded the timeout", index)

    @property
    def service(self) -> ServiceDescription | None:
        """The service with its own settings; None until a worker has described it."""
        return self._apis.service

    def learned(self) -> dict[str, list[tuple[float, float]]]:
        """Return the learned batch times by API; see :meth:`Dispatcher.learned`."""
        learned = {api: self.batching.dispatcher.learned(api) for api in self._apis.in_force}
        return {api: points for api, points in learned.items() if points}
