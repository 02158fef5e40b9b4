"""The gateway: accepts requests over HTTP and gRPC, and sends batches to workers or model servers."""

from uncork_gateway.gateway import Gateway
from uncork_gateway.services.apis import GatewaySettings

__all__ = ["Gateway", "GatewaySettings"]
