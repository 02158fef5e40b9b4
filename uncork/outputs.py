"""The output adapters, for ``@api(output=...)``, and what a handler may return for one request alone."""

from uncork_workers.definition.outputs.media_types import Csv, Image, Json, Npy, Output
from uncork_workers.definition.outputs.responses import Rejected, Response

__all__ = ["Csv", "Image", "Json", "Npy", "Output", "Rejected", "Response"]
