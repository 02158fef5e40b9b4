"""The adapter for images, decoded by Pillow."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.definition.adapters.requests import Request, RequestAdapter
from uncork_workers.definition.adapters.uploads import read_upload
from uncork_workers.extras import install_command
from uncork_workers.wire.messages import Meta
from uncork_workers.wire.schema import MULTIPART
from uncork_workers.wire.values import MAX_COUNT, DefinitionError, is_count

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

# Pillow reads more formats, but some start other programs and others serve mostly attackers.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
# Modes with more than 8 bits, which keep all values of 16-bit images.
_DEEP_MODES = ("I", "I;16", "F")
# The markers of JPEG, except those within scans. Each scan of a few bytes takes as long as all pixels do;
# progressive images have about 10.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
_SCAN, _END = b"\xff\xda", b"\xff\xd9"
_MOST_SCANS = 100
# The most EXIF segments in a JPEG: for each, Pillow copies all before it. And the most bytes of EXIF data in
# an image that is rotated: Pillow parses and writes each number.
_EXIF = re.compile(rb"\xff\xe1..Exif\0\0", re.DOTALL)
_MOST_EXIF, _MOST_EXIF_BYTES = 100, 2**16
# The tags of TIFF for the size of a tile, which can exceed that of the image.
_TILE_WIDTH, _TILE_LENGTH = 322, 323
# Pillow makes several objects of each number in the tags of a TIFF, such as the place of a strip, and of each
# part of a file that it reads, such as a chunk of PNG. They take much more memory than the bytes. In a BMP,
# these are the runs of equal pixels.
_MOST_TAG_VALUES = 400_000
_MOST_READS, _MOST_READS_OF_BMP = 100_000, 5_000_000
_NESTED_TAGS = (34665, 34853)
# The types of tags that Pillow keeps as bytes.
_BYTE_TYPES = (1, 2, 7)


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

    Without ``size``, the images of a batch that have more than ``PIL.Image.MAX_IMAGE_PIXELS`` pixels in total
    are decoded in portions, with one call of the handler for each.

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
        # Pillow warns about large images, which get 400 here, and about broken metadata. A filter for each
        # batch would have to be set and removed by several threads, which undo each other's.
        warnings.filterwarnings("ignore", module=r"PIL\.")
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
        # Images that are resized are decoded one at a time, so their batch needs no limit.
        self._portion_pixels = None if size is not None else most

    def schema(self) -> dict[str, Any]:
        """Return the schema of an image file."""
        return {"type": "string", "contentMediaType": "image/*"}

    def portions(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> list[int]:
        """Limit the pixels of the images that are decoded together, by the headers of their files."""
        if self._portion_pixels is None:
            return super().portions(bodies, metas)
        sizes = [_pixels(body, meta.content_type) for body, meta in zip(bodies, metas, strict=True)]
        counts: list[int] = []
        left = 0
        for pixels in sizes:
            if pixels > left or not counts:
                counts.append(0)
                left = self._portion_pixels
            counts[-1] += 1
            left -= pixels
        return counts

    def handle_batch_request(self, requests: Sequence[Request]) -> list[PillowImage]:
        """Decode the image of each request."""
        return [self._decode(read_upload(request.body, request.content_type).data) for request in requests]

    def _decode(self, data: bytes) -> PillowImage:
        import PIL.Image
        import PIL.ImageOps

        image = _open(data)
        for name, (width, height) in _decoded_sizes(image).items():
            if self._max_pixels is not None and width * height > self._max_pixels:
                raise InvalidInput(f"{name} {width} x {height} pixels; the limit is {self._max_pixels}")
        if image.format in ("JPEG", "MPO") and _has_many_scans(data):
            raise InvalidInput(f"the image has more than {_MOST_SCANS} scans")
        try:
            image.load()
            image.getexif()
            if len(image.info.get("exif", b"")) > _MOST_EXIF_BYTES:
                del image.info["exif"]
            PIL.ImageOps.exif_transpose(image, in_place=True)
            upright = _in_8_bits(image, self._mode).convert(self._mode)
        except Exception as error:
            raise InvalidInput(f"the image cannot be decoded: {error}") from error
        return upright if self._size is None else upright.resize(self._size, PIL.Image.Resampling.BICUBIC)


def _open(data: bytes) -> PillowImage:
    """Read the headers of an image, nothing else."""
    import PIL.Image

    if (count := _tag_values(data)) > _MOST_TAG_VALUES:
        raise InvalidInput(f"the tags of the image have {count} values; the limit is {_MOST_TAG_VALUES}")
    if any(islice(_EXIF.finditer(data), _MOST_EXIF, None)) and data.startswith(b"\xff\xd8"):
        raise InvalidInput(f"the image has more than {_MOST_EXIF} segments of EXIF data")
    try:
        return PIL.Image.open(_File(data), formats=_FORMATS)
    except PIL.UnidentifiedImageError:
        raise InvalidInput(f"the body is not a supported image; send {', '.join(_FORMATS)}") from None
    except Exception as error:  # Pillow's decoders raise all kinds of exceptions
        raise InvalidInput(f"the image cannot be read: {error}") from error


class _File(io.BytesIO):
    """A file that can be read in a limited number of parts."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads_left = _MOST_READS_OF_BMP if data.startswith(b"BM") else _MOST_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise ValueError("it has too many parts")
        return super().read(size)


def _has_many_scans(data: bytes) -> bool:
    """Return True if the first image in a JPEG has more than 100 scans; others may follow it."""
    at = scans = 0
    while scans <= _MOST_SCANS and (found := _MARKER.search(data, at)) and found[0] != _END:
        at = found.end() + max(2, int.from_bytes(data[found.end() : found.end() + 2]))
        scans += found[0] == _SCAN
    return scans > _MOST_SCANS


def _tag_values(data: bytes, start: int | None = None) -> int:
    """Return how many numbers the tags of a TIFF have, by its headers; 0 for another file.

    ``start`` is the place of nested tags.
    """
    if not data.startswith((b"II", b"MM")):
        return 0
    order = "<" if data.startswith(b"II") else ">"
    is_big = data[2:3] == b"+"
    of_start, of_count, of_tag = ("8xQ", "Q", "HHQQ") if is_big else ("4xL", "H", "HHLL")
    is_nested = start is not None
    try:
        if start is None:
            [start] = struct.unpack_from(order + of_start, data)
        [count] = struct.unpack_from(order + of_count, data, start)
    except (struct.error, OverflowError):
        return 0  # Pillow says what is wrong
    first, size = start + struct.calcsize(order + of_count), struct.calcsize(order + of_tag)
    end = first + min(count, (len(data) - first) // size, _MOST_TAG_VALUES) * size
    tags = [*struct.iter_unpack(order + of_tag, data[first:end])]
    nested = [] if is_nested else [at for tag, _, _, at in tags if tag in _NESTED_TAGS]
    values = sum(1 + (0 if kind in _BYTE_TYPES else values) for _, kind, values, _ in tags)
    return values + sum(_tag_values(data, at) for at in nested[: len(_NESTED_TAGS)])


def _decoded_sizes(image: PillowImage) -> dict[str, tuple[int, int]]:
    """Return the sizes of what decoding an image fills: the image and, for TIFF, one of its tiles."""
    sizes = {"the image has": image.size}
    tags = getattr(image, "tag_v2", {})
    tile = tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)
    if not all(isinstance(length, int) for length in tile):
        raise InvalidInput(f"the image cannot be read: its tiles have the size {tile}")
    return sizes | {"the image has tiles of": tile}


def _pixels(body: bytes, content_type: str) -> int:
    """Return how many pixels the headers of a request's image announce; 0 if it is not valid."""
    try:
        image = _open(read_upload(body, content_type).data)
        return max(width * height for width, height in _decoded_sizes(image).values())
    except InvalidInput:
        return 0


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
