"""Random rows of numbers that the target service should accept."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

_BODIES = 1000
# Values of all bodies together; one body may have so many, and then there is only one.
_MOST_VALUES = 10_000_000
# Numbers are drawn in this many steps, so that all texts have about the same length.
_STEPS = 10**6
# A bound beyond this is the limit of a type, not of sensible values.
_FARTHEST = 1e9
_DEEPEST = 20
_SIZE = re.compile(r"[1-9][0-9]{0,7}")


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A uniform distribution: integers from low to high, or numbers strictly between them."""

    low: float = 0.0
    high: float = 1.0
    integers: bool = False

    def __str__(self) -> str:
        if self.integers:
            return f"integers from {self.low:.0f} to {self.high:.0f}"
        return f"numbers between {self.low:g} and {self.high:g}"

    def draw(self, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
        if self.integers:
            return random.integers(round(self.low), round(self.high), size=shape, endpoint=True)
        span = self.high - self.low
        digits = math.ceil(math.log10(_STEPS / span))
        return (self.low + span * random.integers(1, _STEPS, size=shape) / _STEPS).round(digits)


@dataclass(frozen=True, kw_only=True)
class RandomRows:
    """The shape and range of random bodies."""

    shape: tuple[int, ...]
    rows: int = 1
    """Rows per body."""
    numbers: Numbers | None = None
    """None: by the schema of the service."""

    def __str__(self) -> str:
        rows = "a random row" if self.rows == 1 else f"{self.rows} random rows"
        return f"{rows} of shape {','.join(map(str, self.shape))}, {self.numbers or Numbers()}"

    def __post_init__(self) -> None:
        if self._values > _MOST_VALUES:
            raise ValueError(
                f"a random body has at most {_MOST_VALUES:,} values, {self} has {self._values:,}; choose a "
                "smaller --shape or fewer --rows"
            )

    @property
    def _values(self) -> int:
        """Return the number of values in a body."""
        return self.rows * math.prod(self.shape)

    def bodies(self, *, seed: int, count: int = _BODIES) -> tuple[bytes, ...]:
        """Return JSON bodies, each a row or a list of `rows` rows: `count`, or fewer if they are large."""
        numbers = self.numbers or Numbers()
        rows = [self.rows] if self.rows > 1 else []
        wanted = (min(count, _MOST_VALUES // self._values), *rows, *self.shape)
        values = numbers.draw(wanted, np.random.default_rng(seed))
        return tuple(json.dumps(one, separators=(",", ":")).encode() for one in values.tolist())


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse sizes separated by commas; raise ValueError if the text has another form."""
    sizes = [size.strip() for size in text.split(",")]
    if len(sizes) > _DEEPEST or not all(map(_SIZE.fullmatch, sizes)):
        raise ValueError(
            f"--shape takes sizes separated by commas, such as 4 or 28,28, at most {_DEEPEST} of them, each "
            f"from 1 to 99999999; got {text!r}"
        )
    return tuple(map(int, sizes))


def parse_range(text: str) -> Numbers:
    """Parse two numbers separated by a comma; two integers make a range of integers.

    Raises:
        ValueError: if the text has another form.
    """
    ends = text.split(",")
    try:
        low, high = map(float, ends)
    except ValueError:
        low = high = 0.0
    if not low < high or max(abs(low), abs(high)) > _FARTHEST:
        raise ValueError(
            "--range takes two numbers up to 1e9, the lower one first: 0,255 for integers, 0.0,1.0 for "
            f"floats; got {text!r}"
        )
    integers = all(end.strip().lstrip("+-").isdecimal() for end in ends)
    return Numbers(low=low, high=high, integers=integers)


def numbers_in(document: Mapping[str, Any], *, path: str) -> Numbers | None:
    """Return the range of numbers that an OpenAPI document gives for the JSON body at a path.

    It follows from the schema's bounds, or from the example. None if the document has neither, or if the body
    is not an array of numbers.
    """
    body = _at(document, "paths", path, "post", "requestBody", "content", "application/json")
    if not isinstance(body, dict):
        return None
    schema = _innermost(body.get("schema"), document)
    kind = schema.get("type")
    if kind not in ("integer", "number", None):
        return None
    if kind is not None and (found := _within_bounds(schema, integers=kind == "integer")):
        return found
    found = _like(_example(body), whole=kind != "number")
    return found or (Numbers(low=0, high=9, integers=True) if kind == "integer" else None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _innermost(schema: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the innermost array items, taking the first of several alternatives."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            break
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if isinstance(reference := schema.get("$ref"), str):
            keys = reference.removeprefix("#/").split("/")
            schema = _at(document, *(key.replace("~1", "/").replace("~0", "~") for key in keys))
        elif isinstance(choices, list):
            schema = choices[0]
        elif "items" in schema:
            schema = schema["items"]
        else:
            return schema
    return {}


def _within_bounds(schema: Mapping[str, Any], *, integers: bool) -> Numbers | None:
    """Return the range of a schema's bounds; with a single bound, near it and not negative if possible."""
    step, span = (1, 9) if integers else (0, 1)
    low = _bound(schema, "minimum", "exclusiveMinimum", step)
    high = _bound(schema, "maximum", "exclusiveMaximum", -step)
    if low is None and high is None:
        return None
    if high is None:
        low = max(0.0, low or 0.0)
        high = low + span
    elif low is None:
        low = 0.0 if high > 0 else high - span
        high = min(high, low + span)
    if integers:
        low, high = math.ceil(low), math.floor(high)
    return Numbers(low=low, high=high, integers=integers) if low < high else None


def _bound(schema: Mapping[str, Any], name: str, exclusive: str, step: int) -> float | None:
    bound, beyond = schema.get(name), schema.get(exclusive)
    # OpenAPI 3.0 has true or false in `exclusiveMinimum`, 3.1 a number.
    if _is_number(beyond):
        bound = beyond + step
    elif beyond is True and _is_number(bound):
        bound += step
    return float(bound) if _is_number(bound) and abs(bound) <= _FARTHEST else None


def _example(body: Mapping[str, Any]) -> Any:
    examples = body.get("examples")
    if isinstance(examples, dict) and examples:
        return _at(next(iter(examples.values())), "value")
    return body.get("example")


def _like(example: Any, *, whole: bool) -> Numbers | None:
    """Return the range of an example's numbers, of integers if all are and `whole` allows it."""
    found = list(_flat(example)) if isinstance(example, list) else []
    if not all(map(_is_number, found)) or len(set(found)) < 2 or max(map(abs, found)) > _FARTHEST:
        return None
    return Numbers(
        low=min(found), high=max(found), integers=whole and all(isinstance(one, int) for one in found)
    )


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    else:
        yield value


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
