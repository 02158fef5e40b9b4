"""What the service serves, as an OpenAPI document (3.1)."""

from uncork_gateway.pages.openapi.document import make_openapi

__all__ = ["make_openapi"]
