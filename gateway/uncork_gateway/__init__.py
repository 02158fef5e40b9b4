"""The gateway: HTTP in, batches out."""

from uncork_gateway.gateway import Gateway
from uncork_gateway.services.apis import GatewaySettings

__all__ = ["Gateway", "GatewaySettings"]
