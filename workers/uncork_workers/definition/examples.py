"""What an api is shown with to people who want to try it: the user's example, or one made from the schema."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter, Sample
from uncork_workers.wire.schema import COST_IN_BYTES, JSON, field_cost

Schema = dict[str, Any]
MOST_VALUES = 4096
"""A larger example is of no use to anybody."""

_MOST_BYTES = 16 * 2**10
_TEXT = "some text"
_FORMATS = {
    "byte": "c29tZSB0ZXh0",
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1M",
    "email": "someone@example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    **dict.fromkeys(("uuid", "uuid4"), "123e4567-e89b-42d3-a456-426614174000"),
}


class NoExample(ValueError):
    """None can be made: it would be too large, or the schema says too little."""


def shown_example(adapter: Adapter, sample: Sample | None, cost: object) -> tuple[bytes, str]:
    """A JSON text and the media type of the body that it stands for: a row, or a text as a JSON string.

    ``sample`` is what the service gives, if it does. Empty if there is none that people could read, or none
    can be made that the adapter takes.
    """
    try:
        if sample is not None and sample.meta is not None:
            body, media_type = _text_body(sample), sample.meta.content_type.partition(";")[0].strip()
        elif sample is not None:
            body, media_type = sample.body, JSON
        else:
            body, media_type = _made(adapter, cost), JSON
    # Rules of a user's type are the user's code, and what is made up may be what they do not expect.
    except Exception:
        return b"", ""
    return (body, media_type) if len(body) <= _MOST_BYTES else (b"", "")


def _text_body(sample: Sample) -> bytes:
    assert sample.meta is not None
    if sample.meta.content_type.startswith("text/"):
        return msgspec.json.encode(sample.body.decode())
    return msgspec.json.format(sample.body, indent=-1)


def _made(adapter: Adapter, cost: object) -> bytes:
    body = adapter.sample(example_of(adapter.schema())).body
    adapter.merge([body])
    if isinstance(cost, str) and cost != COST_IN_BYTES:
        field_cost(body, cost)
    return body


def example_of(schema: Schema) -> Any:
    """A value that is allowed, as far as can be told by types, bounds and formats; patterns are not read.

    It has all the properties that are named: people see what there is.

    Raises:
        NoExample: if it cannot be made.
    """
    return _Maker(schema.get("$defs", {})).make(schema)


class _Maker:
    """Makes one example; ``definitions`` are what it may refer to."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._open: list[str] = []
        self._values = 0

    def make(self, schema: Schema | bool) -> Any:
        """One value.

        Raises:
            NoExample: if it would be too large, or contain itself.
        """
        self._values += 1
        if self._values > MOST_VALUES:
            raise NoExample("it would be too large")
        if isinstance(schema, bool):
            return _TEXT
        for said in ("default", "const"):
            if said in schema:
                return schema[said]
        if "$ref" in schema:
            return self._referred(schema["$ref"].rpartition("/")[2])
        for several in ("examples", "enum"):
            if schema.get(several):
                return schema[several][0]
        for choice in ("anyOf", "oneOf", "allOf"):
            if choice in schema:
                return self._first(schema[choice])
        return self._of_type(schema)

    def _referred(self, name: str) -> Any:
        if name in self._open:
            raise NoExample("it would contain itself")
        self._open.append(name)
        try:
            return self.make(self._definitions[name])
        finally:
            self._open.pop()

    def _first(self, choices: Sequence[Schema]) -> Any:
        """The first that can be made and says more than null."""
        for choice in choices:
            try:
                if choice.get("type") != "null":
                    return self.make(choice)
            except NoExample:
                continue
        return None

    def _of_type(self, schema: Schema) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else None)
        match kind[0] if isinstance(kind, list) else kind:
            case "integer":
                return _number(schema, whole=True)
            case "number":
                return _number(schema, whole=False)
            case "boolean":
                return True
            case "string":
                return _text(schema)
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
            case "null":
                return None
        return {}

    def _array(self, schema: Schema) -> list[Any]:
        items = [self.make(one) for one in schema.get("prefixItems", [])]
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        try:
            while len(items) < min(max(1, least), most):
                items.append(self.make(schema.get("items", True)))
        except NoExample:
            # What contains itself has an end where it may.
            if len(items) < least:
                raise
        return items

    def _object(self, schema: Schema) -> dict[str, Any]:
        made: dict[str, Any] = {}
        required = schema.get("required", ())
        for name, inner in schema.get("properties", {}).items():
            try:
                made[name] = self.make(inner)
            except NoExample:
                if name in required:
                    raise
        others = schema.get("additionalProperties", True)
        while len(made) < schema.get("minProperties", 0) and others is not False:
            made[f"name_{len(made) + 1}"] = self.make(others)
        return made


def _number(schema: Schema, *, whole: bool) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = schema.get("multipleOf", 1 if whole else 0.5)
    if least is None:
        value = step if most is None or most > step else math.floor(most / step) * step
    else:
        value = max(step, math.ceil(least / step) * step)
    if value == schema.get("exclusiveMinimum"):
        value += step
    if value == schema.get("exclusiveMaximum"):
        value -= step
    if not whole and most is not None and value > most and least is not None:
        value = (least + most) / 2
    return int(value) if whole else value


def _text(schema: Schema) -> str:
    known = "byte" if schema.get("contentEncoding") == "base64" else schema.get("format", "")
    text = _FORMATS.get(known, _TEXT)
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    return text.ljust(shortest, "x") if len(text) < shortest else text[: int(min(longest, len(text)))]
