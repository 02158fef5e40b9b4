"""Encoding of Pillow images."""

from __future__ import annotations

import io
from typing import Any

from uncork_workers.definition.outputs.responses import WrongResult

_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
DEFAULT_IMAGE = "image/png"


def is_image(result: object) -> bool:
    """Return whether a result is a Pillow image, without importing Pillow."""
    return any(base.__module__ == "PIL.Image" for base in type(result).__mro__)


def encode_image(image: Any, media_type: str) -> bytes:
    """Encode an image as a file.

    Raises:
        WrongResult: if it cannot be written in that format.
    """
    image_format = _FORMATS[media_type]
    file = io.BytesIO()
    try:
        # JPEG has no transparency.
        if image_format == "JPEG" and image.mode not in ("RGB", "L", "CMYK"):
            image = image.convert("RGB")
        image.save(file, image_format)
    except (OSError, ValueError, SystemError) as error:
        raise WrongResult(f"an image cannot be written as {image_format}: {error}") from error
    return file.getvalue()
