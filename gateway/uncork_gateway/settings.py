"""The settings of a proxy, and those that it has in common with a gateway."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from uncork_dispatcher import ApiRules
from uncork_gateway.auth import AllowedOrigins, ApiKeys
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.headers import HeaderRules
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

ProtocolName = Literal["auto", "v1", "v2", "tfserving"]

# Stands for no goal: requests are never shed by prediction, and any time plus a day is finite.
_NO_GOAL_S = 86_400.0


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxySettings(ServerSettings):
    """The settings of a proxy; the defaults are those in KServe's documentation.

    Attributes:
        protocol: the protocol of clients and servers; ``auto`` chooses by the path.
        max_batch_rows: the most rows in a call; larger requests are split.
        max_hold_s: the longest hold while a server is idle.
        goal_s: the latency goal; requests that cannot meet it are shed. None: no goal.
        timeout_s: the longest time that a call may take.
        policy: the policy that decides when to release a batch.
        concurrency: the most calls that a server runs at a time.
        idempotent: True if a failed call may be repeated, whole or in parts.
        health_path: the path to which a healthy server responds 2xx; None: a connection suffices.
        server_ca: the file (PEM) of CA certificates to trust for servers with TLS; None: public CAs.
        headers: which headers of merged requests go into the call.
    """

    protocol: ProtocolName = "auto"
    max_batch_rows: int = 32
    max_hold_s: float = 0.5
    goal_s: float | None = None
    timeout_s: float = 60.0
    policy: str = "cork"
    concurrency: int = 1
    idempotent: bool = True
    health_path: str | None = None
    server_ca: Path | None = None
    headers: HeaderRules = field(default_factory=HeaderRules)

    @property
    def most_rows_of_part(self) -> int:
        """The most rows in a part of a larger request. Without batching, requests are not split."""
        return sys.maxsize if self.policy == "none" else self.max_batch_rows

    def rules(self, model: str) -> ApiRules:
        """Return the dispatcher's rules for a model.

        Raises:
            ValueError: if a value is out of range.
        """
        return ApiRules(
            name=model,
            goal_s=_NO_GOAL_S if self.goal_s is None else self.goal_s,
            max_batch_rows=self.max_batch_rows,
            policy=self.policy,
            max_hold_s=self.max_hold_s,
            timeout_s=self.timeout_s,
            idempotent=self.idempotent,
            max_queue_rows=self.max_queue_rows,
            max_queue_requests=self.max_queue_rows,
            max_queue_bytes=self.max_queue_bytes,
            fair=self.fair_by is not None,
        )
