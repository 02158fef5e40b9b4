"""Input adapters, one module each."""

from uncork_workers.definition.adapters.base import Adapter, InvalidInput
from uncork_workers.definition.adapters.dataframe import DataFrame
from uncork_workers.definition.adapters.file import File
from uncork_workers.definition.adapters.image import Image
from uncork_workers.definition.adapters.json import Json
from uncork_workers.definition.adapters.ndarray import NdArray
from uncork_workers.definition.adapters.requests import Request, RequestAdapter, RequestBatch, Requests
from uncork_workers.definition.adapters.text import Text
from uncork_workers.definition.adapters.uploads import UploadedFile

__all__ = [
    "Adapter",
    "DataFrame",
    "File",
    "Image",
    "InvalidInput",
    "Json",
    "NdArray",
    "Request",
    "RequestAdapter",
    "RequestBatch",
    "Requests",
    "Text",
    "UploadedFile",
]
