"""The dispatcher of one service, or of the servers behind a proxy, with metrics, status and log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from uncork_dispatcher import ApiRules, AsyncDispatcher, Observer, Runner
from uncork_gateway.connection.bursts import Bursts
from uncork_gateway.pages.status.service_status import Served, ServiceStatus
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.classes import Classes
from uncork_gateway.requests.coalescing import Coalescing
from uncork_gateway.requests.shadow import ShadowTally
from uncork_gateway.telemetry.access_log import BatchLog
from uncork_gateway.telemetry.exposition import Collect
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.handler_metrics import HandlerMetrics
from uncork_gateway.telemetry.live_state import live_state
from uncork_gateway.telemetry.metrics import Metrics
from uncork_gateway.telemetry.recorder import Recorder
from uncork_workers.wire.schema import ApiDescription

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


class Batching:
    """The dispatcher of a service, or of a proxy's servers, with its metrics, status and log.

    Create it inside a running event loop.

    Args:
        served: the service or the servers, as the pages show them.
        runner: executes the batches.
        name: the service's name; empty in a proxy, and until it is known.
        prefix: the prefix of its APIs' ids, if there may be several services.
        batches: the finished batches of all services.
        bursts: the bursts of the listener that receives the requests.
        traces: creates spans for batches, if given.
        is_proxy: True for the servers behind a proxy.
        has_goal: True if a latency goal is set.
        index_of: returns the index of the worker with a key.
        observers: additional observers of the dispatcher.

    Attributes:
        ready: set once a batch can run.
        is_shadow: True if it only gets copies of other versions' requests.
        shadow: counts the copied requests by outcome.
        handler_metrics: what the handlers of a service record.
        collectors: return the metrics, without a label for the service.
        on_removed: called with the name of each API that is removed.
    """

    def __init__(
        self,
        served: Served,
        runner: Runner[Any, Any],
        *,
        name: str = "",
        prefix: str = "",
        batches: FinishedBatches,
        bursts: Bursts,
        traces: Traces | None,
        is_proxy: bool = False,
        has_goal: bool = True,
        index_of: Callable[[int], int] = lambda worker: worker,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.served = served
        self.name = name
        self.prefix = prefix
        self.ready = asyncio.Event()
        self.is_shadow = False
        self.batch_headers = BatchHeaders(secrets.token_hex(4))
        self.metrics = Metrics()
        self._coalescing: dict[str, Coalescing] = {}
        self.shadow = ShadowTally()
        self.handler_metrics = HandlerMetrics()
        self._recorder = Recorder(
            self.metrics,
            sample=lambda api: self.dispatcher.sample(api),
            index_of=index_of,
            batches=batches,
            prefix=prefix,
        )
        self.on_removed: list[Callable[[str], object]] = [
            self.metrics.forget,
            self.handler_metrics.forget,
            self._recorder.forget,
        ]
        all_observers: list[Observer] = [
            self._recorder,
            self.metrics,
            BatchLog(self.batch_headers.id_of),
            *observers,
        ]
        if traces is not None:
            all_observers.append(traces)
        self.dispatcher: AsyncDispatcher[Any, Any] = AsyncDispatcher(
            runner, observers=all_observers, bursts=bursts
        )
        self.status = ServiceStatus(
            served,
            name=lambda: self.name,
            prefix=prefix,
            ready=self.ready,
            shadow=lambda: {str(name): count for name, count in self.shadow.total().items()},
            dispatcher=self.dispatcher,
            recorder=self._recorder,
            is_proxy=is_proxy,
            has_goal=has_goal,
        )
        self.collectors: list[Collect] = [
            self.metrics.collect,
            lambda: live_state(
                [api for api in self.dispatcher.stats() if served.serves(api.name)],
                workers=served.worker_states(),
                restarts=served.restarts,
                startup_s=self.dispatcher.startup_s,
                classes=self.metrics.classes,
                has_goal=has_goal,
            ),
            self.shadow.collect,
            *([] if is_proxy else [self.handler_metrics.collect]),
        ]

    def classes(self, api: ApiDescription) -> Classes | None:
        """Return the classes of an API's requests; None if it has one."""
        names = api.class_names
        return None if names is None else Classes(names, self.metrics.bulk(api.name))

    def coalescing(self, api: ApiDescription) -> Coalescing | None:
        """Return the computations that requests to an API can join; None if it runs each request."""
        if not api.coalesce:
            return None
        if api.name not in self._coalescing:
            self._coalescing[api.name] = Coalescing(
                self.dispatcher,
                ApiRules(name=api.name),
                lambda bulk: (self.metrics.bulk if bulk else self.metrics.api)(api.name),
            )
        return self._coalescing[api.name]

    def forget_api(self, name: str) -> bool:
        """Drop an API's queue, estimate, counts and history; return False if it still has requests."""
        if not self.dispatcher.remove_api(name):
            return False
        self._coalescing.pop(name, None)
        for forget in self.on_removed:
            forget(name)
        return True
