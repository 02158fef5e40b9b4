"""The HTTP front end: marshals requests in and replies out, in front of the dispatcher."""

from uncork_gateway.apis import GatewaySettings
from uncork_gateway.service import Gateway

__all__ = ["Gateway", "GatewaySettings"]
