"""The OpenAPI document (3.1) of a service."""
