"""The greatest difference between two results of one row."""

import io
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from uncork.cli.check.figures import Comparison
from uncork_gateway.dialects.base import HandlerResult
from uncork_workers.wire.messages import json_path
from uncork_workers.wire.schema import JSON

Array = np.ndarray[Any, Any]
Path = tuple[str | int, ...]

_SHOWN_BYTES = 40
_SHOWN_STEPS = 8
_NONE = "none, as only floats may differ"


class Tolerance(NamedTuple):
    """How far floats may differ, as in :func:`numpy.allclose`."""

    relative: float
    absolute: float

    def __str__(self) -> str:
        return f"{100 * self.relative:g} % plus {self.absolute:g}"


FLOATS = Tolerance(1e-3, 1e-5)
_HALVES = Tolerance(1e-2, 1e-3)
_PIXELS = Tolerance(0, 1)


def difference(first: HandlerResult, second: HandlerResult) -> Comparison:
    """Return the greatest difference beyond the tolerance; its figures say where. NaN equals NaN."""
    if first.content_type != second.content_type:
        types = first.content_type or JSON, second.content_type or JSON
        return _difference(math.inf, "the media type", *types)
    if first.body == second.body:
        return Comparison()
    values = _value(first), _value(second)
    if bytes in map(type, values):
        values = first.body, second.body
    try:
        found = [*_differences(*values, _tolerance(first))]
    except (RecursionError, OverflowError):
        found = [_of_others(first.body, second.body, ())]
    return max(found, key=lambda one: one.excess, default=Comparison())


def _tolerance(result: HandlerResult) -> Tolerance:
    if result.content_type.startswith("image/"):
        return _PIXELS
    form = msgspec.json.encode(result.form)
    return _HALVES if b'"FP16"' in form or b'"BF16"' in form else FLOATS


def _value(result: HandlerResult) -> Any:
    """Decode a result; return its bytes if that is not possible."""
    body, media_type = result.body, result.content_type
    try:
        if not media_type or media_type.startswith(JSON):
            return msgspec.json.decode(body)
        if media_type.startswith("text/"):
            return body.decode()
        if media_type.startswith("image/"):
            from PIL import Image  # the service has it

            return np.asarray(Image.open(io.BytesIO(body)), np.float32)
    # A body may be anything, and the library for images may raise anything.
    except Exception:
        pass
    return body


def _differences(first: Any, second: Any, tolerance: Tolerance, path: Path = ()) -> Iterator[Comparison]:
    match first, second:
        case np.ndarray(), np.ndarray():
            yield from _of_numbers(first, second, tolerance, path)
        case bytes(), bytes():
            yield _of_others(first, second, path)
        case _ if first == second:
            return
        case _ if _has_floats(first, second):
            yield from _of_numbers(np.array(first, float), np.array(second, float), tolerance, path)
        case dict(), dict() if first.keys() == second.keys():
            for key, value in first.items():
                yield from _differences(value, second[key], tolerance, (*path, key))
        case list(), list() if len(first) == len(second):
            for at, values in enumerate(zip(first, second, strict=True)):
                yield from _differences(*values, tolerance, (*path, at))
        case _:
            yield _of_others(first, second, path)


def _has_floats(first: Any, second: Any) -> bool:
    """Return whether two values, or lists of one length, are numbers, some of them floats. Null is NaN."""
    if not (isinstance(first, list) and isinstance(second, list)):
        first, second = [first], [second]
    types = {*map(type, first), *map(type, second)}
    return len(first) == len(second) and float in types and types <= {float, int, type(None)}


def _of_numbers(first: Array, second: Array, tolerance: Tolerance, path: Path) -> Iterator[Comparison]:
    if first.shape != second.shape:
        yield _difference(math.inf, "the size of the image", str(first.shape), str(second.shape))
        return
    gaps = np.where(
        np.isnan(first) & np.isnan(second), 0, np.nan_to_num(np.abs(second - first), nan=math.inf)
    )
    most = tolerance.absolute + tolerance.relative * np.nan_to_num(np.abs(first))
    at = np.unravel_index(int(np.argmax(gaps / most)), gaps.shape)
    if gaps[at] > most[at]:
        where = _where((*path, *map(int, at)))
        numbers = (f"{first[at]:.6g}", f"{second[at]:.6g}")
        # Half precision widens what may differ, not what is much for the list.
        unit = min(tolerance, FLOATS)
        largest = unit.absolute + unit.relative * np.nan_to_num(np.abs(first)).max()
        yield _difference(float(gaps.max() / largest), where, *numbers, tolerance=str(tolerance))


def _of_others(first: Any, second: Any, path: Path) -> Comparison:
    """Return a difference with the parts around the first byte that differs."""
    is_text = not isinstance(first, bytes)
    bodies = [msgspec.json.encode(value) if is_text else value for value in (first, second)]
    length = min(map(len, bodies))
    one, other = (np.frombuffer(body, np.uint8)[:length] for body in bodies)
    at = int(np.argmax(np.append(one != other, True)))
    start = max(0, at - _SHOWN_BYTES // 2)
    parts = [body[start : start + _SHOWN_BYTES] for body in bodies]
    texts = [part.decode(errors="replace") if is_text else repr(part) for part in parts]
    dots = "…" if start else ""
    # Bytes may hold floats that differ little.
    return _difference(math.inf if is_text else 1, _where(path), *[dots + text for text in texts])


def _difference(excess: float, where: str, expected: str, found: str, tolerance: str = _NONE) -> Comparison:
    figures = {"where": where, "expected": expected, "found": found, "tolerance": tolerance}
    return Comparison(key="batch-leak", figures=figures, excess=excess)


def _where(path: Path) -> str:
    return f"{json_path(*path[:_SHOWN_STEPS])} of the result" if path else "the result"
