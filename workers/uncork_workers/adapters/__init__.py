"""The input adapters, one file each."""

from uncork_workers.adapters.base import Adapter, InvalidInput
from uncork_workers.adapters.json import Json
from uncork_workers.adapters.ndarray import NdArray

__all__ = ["Adapter", "InvalidInput", "Json", "NdArray"]
