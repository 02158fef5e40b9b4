"""The input adapters, one file each."""

from uncork_workers.adapters.base import Adapter, InvalidInput
from uncork_workers.adapters.dataframe import DataFrame
from uncork_workers.adapters.file import File
from uncork_workers.adapters.image import Image
from uncork_workers.adapters.json import Json
from uncork_workers.adapters.ndarray import NdArray
from uncork_workers.adapters.own import Request, RequestAdapter
from uncork_workers.adapters.requests import RequestBatch, Requests
from uncork_workers.adapters.text import Text
from uncork_workers.adapters.uploads import UploadedFile

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
