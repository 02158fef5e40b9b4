"""The output adapters, for ``@api(output=...)``, and what a handler may return for one request alone."""

from uncork_workers.outputs import Rejected, Response
from uncork_workers.outputs.kinds import Csv, Image, Json, Npy, Output

__all__ = ["Csv", "Image", "Json", "Npy", "Output", "Rejected", "Response"]
