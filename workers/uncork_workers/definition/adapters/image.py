"""The adapter for images, decoded by Pillow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.definition.adapters.requests import Request, RequestAdapter
from uncork_workers.definition.adapters.uploads import MULTIPART, read_upload
from uncork_workers.extras import install_command
from uncork_workers.wire.schema import MAX_COUNT, DefinitionError, is_count

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

# Pillow reads more formats, but some start other programs and others serve mostly attackers.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
# Modes with more than 8 bits, which keep all values of 16-bit images.
_DEEP_MODES = ("I", "I;16", "F")


class Image(RequestAdapter):
    """Accepts images; the handler gets a list of ``PIL.Image.Image``. Needs the extra ``image``.

    An image is the whole body or the only part of a ``multipart/form-data`` body. It may be BMP, GIF, JPEG,
    PNG, TIFF or WebP, whatever the content type says. Images are rotated as their EXIF data says. Of an
    animation, the handler gets the first frame; of 16-bit values, the upper 8 bits, unless ``mode`` has
    more. A mode without an alpha channel drops transparency.

    Args:
        mode: the Pillow mode that images are converted to: ``"RGB"``, ``"L"``, ``"RGBA"`` and so on.
        size: (width, height) in pixels; images are resized to it (bicubic, ignoring proportions), so a batch
            fits into one array. By default images keep their size.
        max_pixels: the most pixels of an image as sent; a larger one gets 400 before it is decoded. At most,
            and by default, ``PIL.Image.MAX_IMAGE_PIXELS``.

    Raises:
        DefinitionError: if Pillow is not installed, or an argument is invalid.
    """

    accepts = ("image/*", MULTIPART, "application/octet-stream")

    def __init__(
        self, *, mode: str = "RGB", size: tuple[int, int] | None = None, max_pixels: int | None = None
    ) -> None:
        try:
            import PIL.Image
        except ImportError as error:
            raise DefinitionError(f"Image requires Pillow; run {install_command('image')}") from error
        if not _is_mode(mode):
            raise DefinitionError(f"Image: mode must be a Pillow mode such as 'RGB' or 'L', got {mode!r}")
        most = PIL.Image.MAX_IMAGE_PIXELS
        if size is not None and not (isinstance(size, tuple) and len(size) == 2 and all(map(is_count, size))):
            raise DefinitionError(
                f"Image: size must be (width, height) in pixels, each from 1 to {MAX_COUNT}, got {size!r}"
            )
        if max_pixels is not None and not (is_count(max_pixels) and max_pixels <= (most or max_pixels)):
            raise DefinitionError(
                f"Image: max_pixels must be an integer from 1 to PIL.Image.MAX_IMAGE_PIXELS ({most}), "
                f"got {max_pixels!r}"
            )
        self._mode = mode
        self._size = size
        self._max_pixels = most if max_pixels is None else max_pixels

    def schema(self) -> dict[str, Any]:
        """Return the schema of an image file."""
        return {"type": "string", "contentMediaType": "image/*"}

    def handle_batch_request(self, requests: Sequence[Request]) -> list[PillowImage]:
        """Decode the image of each request."""
        with warnings.catch_warnings():
            # Pillow warns about large images, which get 400 here, and about broken metadata.
            warnings.simplefilter("ignore")
            return [
                self._decode(read_upload(request.body, request.content_type).data) for request in requests
            ]

    def _decode(self, data: bytes) -> PillowImage:
        import PIL.Image
        import PIL.ImageOps

        try:
            image = PIL.Image.open(io.BytesIO(data), formats=_FORMATS)
        except PIL.UnidentifiedImageError:
            raise InvalidInput(f"the body is not a supported image; send {', '.join(_FORMATS)}") from None
        except Exception as error:  # Pillow's decoders raise all kinds of exceptions
            raise InvalidInput(f"the image cannot be read: {error}") from error
        if self._max_pixels is not None and image.width * image.height > self._max_pixels:
            raise InvalidInput(
                f"the image has {image.width} x {image.height} pixels; the limit is {self._max_pixels}"
            )
        try:
            upright = _in_8_bits(PIL.ImageOps.exif_transpose(image), self._mode).convert(self._mode)
        except Exception as error:
            raise InvalidInput(f"the image cannot be decoded: {error}") from error
        return upright if self._size is None else upright.resize(self._size, PIL.Image.Resampling.BICUBIC)


def _in_8_bits(image: PillowImage, mode: str) -> PillowImage:
    # Pillow would clip 16-bit values at 255.
    if not image.mode.startswith("I") or mode in _DEEP_MODES:
        return image
    import PIL.Image

    return PIL.Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype("uint8"))


def _is_mode(mode: object) -> bool:
    import PIL.Image

    try:
        return isinstance(mode, str) and PIL.Image.new("RGB", (1, 1)).convert(mode).mode == mode
    except (ValueError, KeyError):
        return False
