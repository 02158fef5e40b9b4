"""The input adapters, for ``@api(input=...)``."""

from uncork_workers.adapters import Adapter, InvalidInput, Json, NdArray

__all__ = ["Adapter", "InvalidInput", "Json", "NdArray"]
