"""Results that are images."""

from __future__ import annotations

import io
from typing import Any

from uncork_workers.definition.outputs.answers import WrongResult

_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
DEFAULT_IMAGE = "image/png"


def is_image(result: object) -> bool:
    """Whether a result is an image of Pillow's, which is not imported for the question."""
    return any(base.__module__ == "PIL.Image" for base in type(result).__mro__)


def encode_image(image: Any, media_type: str) -> bytes:
    """An image as a file.

    Raises:
        WrongResult: if it cannot be written in that format.
    """
    kind = _FORMATS[media_type]
    file = io.BytesIO()
    try:
        # JPEG knows no transparency.
        if kind == "JPEG" and image.mode not in ("RGB", "L", "CMYK"):
            image = image.convert("RGB")
        image.save(file, kind)
    except (OSError, ValueError, SystemError) as error:
        raise WrongResult(f"an image cannot be written as {kind}: {error}") from error
    return file.getvalue()
