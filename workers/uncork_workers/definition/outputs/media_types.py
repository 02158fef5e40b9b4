"""Output adapters: the media types in which an API can respond."""

from uncork_workers.wire.schema import CSV, JSON, NPY
from uncork_workers.wire.values import DefinitionError

_IMAGES = ("png", "jpeg", "webp")


class Output:
    """A media type for responses. Results that cannot be written in it are sent in their default format.

    Raises:
        TypeError: if a class that sets no ``media_type``, such as this one, is instantiated.
    """

    media_type: str

    def __init__(self) -> None:
        if not hasattr(self, "media_type"):
            raise TypeError(
                f"{type(self).__name__} has no media_type; use Json(), Csv(), Npy() or Image(), or set "
                f"media_type in a subclass of Output"
            )


class Json(Output):
    """JSON: a single result, or a list of results."""

    media_type = JSON


class Csv(Output):
    """CSV with a header, for data frames, dicts of columns, dicts with the same keys, lists and plain values.

    All results of a batch must have the same columns.
    """

    media_type = CSV


class Npy(Output):
    """NumPy's ``.npy`` format, for arrays of numbers or booleans."""

    media_type = NPY


class Image(Output):
    """Image files, for lists of Pillow images. A request must have exactly one row.

    Args:
        format: ``"png"``, ``"jpeg"`` or ``"webp"``.

    Raises:
        DefinitionError: if the format is not one of these.
    """

    def __init__(self, *, format: str = "png") -> None:
        if format not in _IMAGES:
            raise DefinitionError(f"Image: format must be {', '.join(_IMAGES)}, got {format!r}")
        self.media_type = f"image/{format}"


DEFAULT_MEDIA_TYPES = (JSON, NPY, CSV)
