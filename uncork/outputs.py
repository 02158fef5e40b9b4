"""The output adapters, for ``@api(output=...)``, and the results for single requests of a batch."""

from uncork_workers.definition.outputs import Rejected, Response
from uncork_workers.definition.outputs.media_types import Csv, Image, Json, Npy, Output

__all__ = ["Csv", "Image", "Json", "Npy", "Output", "Rejected", "Response"]
