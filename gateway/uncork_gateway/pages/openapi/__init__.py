"""The OpenAPI document (3.1) of a service."""

from uncork_gateway.pages.openapi.document import make_openapi

__all__ = ["make_openapi"]
