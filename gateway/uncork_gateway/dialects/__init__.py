"""Dialects: the protocols in which clients call our own services, one module each."""

from uncork_gateway.dialects.base import Dialect
from uncork_gateway.dialects.native import Native
from uncork_gateway.dialects.rest import Rest
from uncork_gateway.dialects.text_models import TEXT_MODELS
from uncork_gateway.dialects.v2 import V2

__all__ = ["TEXT_MODELS", "V2", "Dialect", "Native", "Rest"]
