"""The settings that a gateway and a proxy have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uncork_gateway.auth import ApiKeys
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits on requests and clients, API keys, logs and traces.

    Attributes:
        max_body_bytes: largest body of a batched request; larger ones get 413.
        limits: on the rows and values of a request to a service; larger ones get 400.
        max_queue_rows: rows that may be queued per API or model; more are refused with 503.
        max_queue_bytes: bytes of bodies that may be queued per API or model; more are refused with 503.
        fair_by: a header, in lower case, whose values share each queue equally; None: first in, first out.
        clients: limits on what one client may use.
        keys: the accepted API keys; None: no key is required.
        admin: whether operators have a listener of their own, ``admin_app``.
        grpc: whether clients may use gRPC.
        access_log: whether to log a line per request.
        traces: creates spans for requests and batches, if given.
    """

    max_body_bytes: int = 64 * 2**20
    limits: Limits = DEFAULT_LIMITS
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    fair_by: bytes | None = None
    clients: ClientLimits = field(default_factory=ClientLimits)
    keys: ApiKeys | None = None
    admin: bool = False
    grpc: bool = False
    access_log: bool = False
    traces: Traces | None = None
