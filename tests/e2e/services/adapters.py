"""A service with an api for every kind of input, whose answers say what came."""

import enum
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd
from PIL.Image import Image as PillowImage

from uncork import Service, api
from uncork.adapters import (
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
from uncork.outputs import Image as ImageFile
from uncork.outputs import Npy

COLUMNS = {"name": "str", "count": "int32", "red": "bool"}


class Colour(enum.Enum):
    """Of a wine."""

    RED, WHITE = "red", "white"


class Bottle(msgspec.Struct):
    """A row with fields of its own."""

    colour: Colour
    year: Annotated[int, msgspec.Meta(ge=1900, lt=2100)]
    litres: Annotated[float, msgspec.Meta(gt=0)] = 0.75
    label: str | None = None


class Points(RequestAdapter):
    """An adapter of the user's own."""

    accepts = ("application/x-points",)

    def handle_batch_request(self, requests: Any) -> Any:
        """Count the bytes of each."""
        if any(not request.body for request in requests):
            raise InvalidInput("a point has at least one byte")
        return [len(request.body) for request in requests]


class Adapters(Service):
    """Takes whatever there is.

    And says what it was.
    """

    @api(input=NdArray(dtype="uint8", shape=(2, None)))
    def array(self, rows: np.ndarray[Any, Any]) -> Any:
        """Sum up."""
        return rows.sum(axis=(1, 2))

    @api(input=NdArray(shape=(3,)), output=Npy())
    def halves(self, rows: np.ndarray[Any, Any]) -> Any:
        """Halve all values."""
        return rows / 2

    @api(input=DataFrame())
    def any_table(self, table: pd.DataFrame) -> Any:
        """Return it."""
        return table

    @api(
        input=DataFrame(
            columns=["name", "count", "red"], dtypes={"name": "str", "count": "int32", "red": "bool"}
        )
    )
    def table(self, table: pd.DataFrame) -> Any:
        """Return it."""
        return table

    @api(input=Json(), warmup={"any": [1, 2.5, None]})
    def value(self, items: list[Any]) -> Any:
        """Return each value."""
        return items

    @api(input=Json(type=Bottle))
    def bottle(self, items: list[Bottle]) -> Any:
        """Return each bottle."""
        return items

    @api(input=Text(), warmup="Grüß Gott")
    def text(self, texts: list[str]) -> Any:
        """Return how long each text is."""
        return [len(text) for text in texts]

    @api(input=File())
    def file(self, files: list[UploadedFile]) -> Any:
        """Return how many bytes each file has."""
        return [len(file.data) for file in files]

    @api(input=File(parts=("left", "right")))
    def pair(self, forms: list[dict[str, UploadedFile]]) -> Any:
        """Return how many bytes the files have."""
        return [{name: len(file.data) for name, file in form.items()} for form in forms]

    @api(input=Image(), output=ImageFile())
    def image(self, images: list[PillowImage]) -> Any:
        """Return each image."""
        return images

    @api(input=Requests(), warmup=Request(body=b'{"a": 1}'))
    def request(self, requests: RequestBatch) -> Any:
        """Return what each brought."""
        return [{"payload": payload} for payload in requests.payloads]

    @api(input=Points())
    def points(self, points: list[int]) -> Any:
        """Return the sizes."""
        return points

    @api(input=Json(type=Bottle), policy="none")
    def pour(self, bottles: list[Bottle]) -> Iterator[str]:
        """Send a word at a time."""
        yield from ("glug ", "glug ", bottles[0].colour.value)
