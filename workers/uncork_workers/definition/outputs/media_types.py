"""The output adapters: which media types an api can answer in, the first to clients that do not ask."""

from __future__ import annotations

from uncork_workers.wire.schema import CSV, JSON, NPY, DefinitionError

_IMAGES = ("png", "jpeg", "webp")


class Output:
    """One media type. Results that cannot be written in it are answered as they are without it."""

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type


class Json(Output):
    """JSON: one result, or a list of them."""

    def __init__(self) -> None:
        super().__init__(JSON)


class Csv(Output):
    """CSV with a header: for frames, columns by name, objects with the same names, lists and values.

    All results of a call must have the same columns.
    """

    def __init__(self) -> None:
        super().__init__(CSV)


class Npy(Output):
    """NumPy's file format: for arrays of numbers or booleans."""

    def __init__(self) -> None:
        super().__init__(NPY)


class Image(Output):
    """Files of images: for lists of Pillow's, one for each request of one row.

    Args:
        format: png, jpeg or webp.

    Raises:
        DefinitionError: if it is another.
    """

    def __init__(self, *, format: str = "png") -> None:
        if format not in _IMAGES:
            raise DefinitionError(f"Image: format must be {', '.join(_IMAGES)}, got {format!r}")
        super().__init__(f"image/{format}")


UNASKED = (JSON, NPY, CSV)
"""What an api offers that says nothing."""
