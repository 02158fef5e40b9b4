"""Output adapters for ``@api(output=...)``, and results that respond to a single request."""

from uncork_workers.definition.outputs.media_types import Csv, Image, Json, Npy, Output
from uncork_workers.definition.outputs.responses import Rejected, Response

__all__ = ["Csv", "Image", "Json", "Npy", "Output", "Rejected", "Response"]
