"""The gateway: HTTP in, batches out."""

from uncork_gateway.apis import GatewaySettings
from uncork_gateway.gateway import Gateway

__all__ = ["Gateway", "GatewaySettings"]
