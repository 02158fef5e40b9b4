"""The settings that a gateway and a proxy have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uncork_gateway.auth import AllowedOrigins, ApiKeys
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits on requests and clients, API keys, logs and traces.

    Attributes:
        max_body_bytes: the largest body of a batched request; larger bodies get 413.
        limits: the most rows and values of a request to a service; larger requests get 400.
        max_queue_rows: the most queued rows per API or model; further requests get 503.
        max_queue_bytes: the most queued body bytes per API or model; further requests get 503.
        fair_by: the header, in lower case, that names a request's flow; flows share each queue equally. None:
            first in, first out.
        clients: the limits for each client.
        keys: the accepted API keys; None: no key is required.
        origins: the origins whose pages may call the API; None: only pages of the server's own.
        dashboard: True to serve the dashboard.
        open_repository: True if clients without an API key may load and unload services.
        admin: True if operators have a separate listener, for ``admin_app``.
        grpc: True to serve gRPC clients.
        access_log: True to log a line per request.
        traces: creates spans for requests and batches, if given.
    """

    max_body_bytes: int = 64 * 2**20
    limits: Limits = DEFAULT_LIMITS
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    fair_by: bytes | None = None
    clients: ClientLimits = field(default_factory=ClientLimits)
    keys: ApiKeys | None = None
    origins: AllowedOrigins | None = None
    dashboard: bool = True
    open_repository: bool = False
    admin: bool = False
    grpc: bool = False
    access_log: bool = False
    traces: Traces | None = None

    @property
    def trusts_clients(self) -> bool:
        """True if clients may load and unload services."""
        return self.open_repository or self.keys is not None
