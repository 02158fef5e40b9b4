"""What schemathesis cannot know of the examples: the formats of their files, and how long a story takes."""

import base64
import csv
import io
import itertools
import math
import struct
from functools import partial
from typing import Any

import schemathesis
from hypothesis import strategies

_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGM4wcUFAAJ6AN1nJ0J9AAAAAElFTkSuQmCC"
)
_TIMEOUT = "X-Request-Timeout-Ms"
_PIXELS_OF_DIGIT = 64
_MOST_ROWS = 3
_STORIES = ("/tell", "/events")
_MOST_WORDS = 20
_calls = itertools.count()
_FIELDS = strategies.one_of(
    strategies.floats(width=32).map(str),
    strategies.sampled_from(["", "NA", "-inf", "1e99"]),
    strategies.text(),
)


def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Hold apis to the statuses that are named; and learn what tables look like.

    Routes of other protocols are left out: what their bodies may be is more than the document says.

    That a handler may choose another is what the document has to say, but none of these does, except where
    answers are wholly its own. That one wants a text.
    """
    of_models = [path for path in raw_schema["paths"] if path.startswith(("/v1/models/", "/v2/"))]
    for path in of_models:
        del raw_schema["paths"][path]
    for path in raw_schema["paths"].values():
        responses, content = path["post"]["responses"], path["post"]["requestBody"]["content"]
        if "*/*" not in responses["default"]["content"]:
            del responses["default"]
        else:
            content["application/json"]["schema"] = {"type": "object", "required": ["text"]}
        if "text/csv" in content:
            [row, _] = content["application/json"]["schema"]["anyOf"]
            names = list(row["properties"])
            line = strategies.lists(_FIELDS, min_size=len(names), max_size=len(names))
            table = strategies.lists(line, min_size=1, max_size=_MOST_ROWS)
            tables = table.map(partial(_csv, names))
            schemathesis.openapi.media_type("text/csv", tables, aliases=["application/csv"])


def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Be patient; ask for all media types in turn; have stories told at once, and none without end.

    What is wrong stays so.
    """
    if _is_time(case.headers.get(_TIMEOUT)):
        case.headers[_TIMEOUT] = "60000"
    offers = list(case.operation.definition.raw["responses"]["200"]["content"])
    case.headers.setdefault("Accept", offers[next(_calls) % len(offers)])
    options = case.body
    if case.operation.path in _STORIES and isinstance(options, dict):
        if isinstance(options.get("words"), int):
            options["words"] = min(options["words"], _MOST_WORDS)
        pause_s = options.get("pause_s", 0)
        if type(pause_s) in (int, float) and 0 <= pause_s <= 1:
            options["pause_s"] = 0


def _is_time(value: Any) -> bool:
    try:
        return 0 < float(value) < math.inf
    except (TypeError, ValueError):
        return False


def _csv(names: list[str], lines: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([names, *lines])
    return text.getvalue().encode(errors="replace")


def _npy(values: bytes) -> bytes:
    """An array of images of digits, in NumPy's format."""
    rows = len(values) // 4 // _PIXELS_OF_DIGIT
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {_PIXELS_OF_DIGIT}), }}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values


def _damaged(file: bytes) -> strategies.SearchStrategy[bytes]:
    """A file, and what is left of it when one byte is another, or the end is missing."""
    places, byte = strategies.integers(0, len(file) - 1), strategies.binary(min_size=1, max_size=1)
    changed = strategies.builds(lambda at, new: file[:at] + new + file[at + 1 :], places, byte)
    return strategies.one_of(strategies.just(file), changed, places.map(lambda end: file[:end]))


# What is made of bytes hardly ever is infinite, or 0.
_images = strategies.builds(
    lambda first, others: struct.pack("<f", first) + others,
    strategies.floats(width=32),
    strategies.binary(min_size=4 * (_PIXELS_OF_DIGIT - 1), max_size=4 * (_PIXELS_OF_DIGIT - 1)),
)
_files = strategies.lists(_images, min_size=1, max_size=_MOST_ROWS).map(b"".join).map(_npy)
schemathesis.openapi.media_type("application/x-npy", _files)
schemathesis.openapi.media_type("image/*", _damaged(_PIXEL))
schemathesis.hook(before_load_schema)
schemathesis.hook(before_call)
