"""Input adapters for ``@api(input=...)``."""

from uncork_workers.definition.adapters import (
    Adapter,
    DataFrame,
    File,
    Image,
    InvalidInput,
    Json,
    NdArray,
    Request,
    RequestAdapter,
    RequestBatch,
    Requests,
    Text,
    UploadedFile,
)

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
