"""What every front end is told: the gateway of our own services, and the proxy before other servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uncork_dispatcher import Observer
from uncork_gateway.auth import ApiKeys
from uncork_gateway.connection.route_table import HotHandler, HotRoutes
from uncork_gateway.connection.timeouts import BodyPool, ClientLimits
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.telemetry.access_log import AccessLog, batch_observers
from uncork_gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How much is taken in, and from whom.

    Attributes:
        max_body_bytes: largest request body that is taken for a batch; larger ones get 413.
        max_queue_rows: rows that may be held per api or model; more are refused with 503.
        max_queue_bytes: bytes of bodies that may be held per api or model; more are refused with 503.
        fair_by: header, in lower case, whose values share each queue equally; None: first come, first served.
        clients: what a client may take up.
        keys: the API keys that are accepted; None: none is wanted.
        access_log: whether a line is logged for each request.
        traces: has spans for requests and batches; None: nobody wants any.
        admin: whether what is for operators is in an app of its own, ``admin_app``.
    """

    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    fair_by: bytes | None = None
    clients: ClientLimits = field(default_factory=ClientLimits)
    keys: ApiKeys | None = None
    admin: bool = False
    access_log: bool = False
    traces: Traces | None = None

    def observers(self, metrics: Metrics, batch_head: BatchHead) -> list[Observer]:
        """Who is told what the dispatcher does: only those that have something to do with it."""
        traces = [] if self.traces is None else [self.traces]
        return [metrics, *batch_observers(batch_head), *traces]

    def hot_routes(self, resolve: Callable[[bytes], HotHandler[Any] | None] | None = None) -> HotRoutes:
        """Routes under these limits; ``resolve`` finds the handler of a target that has none by its path."""
        return HotRoutes(
            resolve,
            limits=self.clients,
            pool=BodyPool.for_bodies(self.max_body_bytes),
            admit=self.keys.admit if self.keys else None,
            access_log=AccessLog() if self.access_log else None,
            traces=self.traces,
        )
