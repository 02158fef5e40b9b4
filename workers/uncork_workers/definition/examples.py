"""Example rows for ``/docs`` and for warm-up: the author's example, or one made from the JSON schema."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, Sample
from uncork_workers.wire.costs import field_cost
from uncork_workers.wire.groups import Source, group_of_row
from uncork_workers.wire.schema import JSON
from uncork_workers.wire.values import DefinitionError

Schema = dict[str, Any]
MOST_VALUES = 4096
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
    """No example can be made of the schema."""


def checked_sample(
    adapter: Adapter, example: object, cost_field: str | None, sources: Sequence[Source] = ()
) -> Sample:
    """Return the request that carries ``example`` as its only row, validated like a client's request.

    ``sources`` are those of ``group_by``.

    Raises:
        ValueError: if the example is not valid.
    """
    sample = adapter.sample(example)
    if sample.meta is None:
        adapter.merge([sample.body])
    else:
        adapter.merge_raw([sample.body], [sample.meta])
    if cost_field is not None:
        field_cost(sample.body, cost_field)
    if sample.meta is None:
        group_of_row(sample.body, sources, is_single=False)
    return sample


def warmup_sample(
    api: str, adapter: Adapter, example: object, cost_field: str | None, sources: Sequence[Source]
) -> Sample:
    """Return the request that carries the ``warmup`` of an API as its only row.

    Raises:
        DefinitionError: if it is not valid.
    """
    try:
        return checked_sample(adapter, example, cost_field, sources)
    except ValueError as error:
        reason = error.in_single_row() if isinstance(error, InvalidInput) else error
        raise DefinitionError(f"API {api!r}: warmup must be an example of one row: {reason}") from error


def docs_example(
    adapter: Adapter, sample: Sample | None, cost_field: str | None, sources: Sequence[Source] = ()
) -> tuple[bytes, str]:
    """Return an example for people, and the media type of the body that carries it.

    It is a row as JSON, or a text as a JSON string, of ``sample`` if there is one. Both are empty if the
    sample is not text, or no valid example can be made of the schema.
    """
    try:
        if sample is None:
            schema_example = example_from_schema(adapter.schema())
            for source in sources:
                if source.kind == "field":
                    schema_example.setdefault(source.name, _TEXT)
            body, media_type = checked_sample(adapter, schema_example, cost_field, sources).body, JSON
        elif sample.meta is None:
            body, media_type = sample.body, JSON
        else:
            media_type = sample.meta.content_type.partition(";")[0].strip()
            is_text = sample.meta.content_type.startswith("text/")
            body = (
                msgspec.json.encode(sample.body.decode())
                if is_text
                else msgspec.json.format(sample.body, indent=-1)
            )
    # Validating runs code of the user's type, which may raise anything for a made-up value.
    except Exception:
        return b"", ""
    return (body, media_type) if len(body) <= _MOST_BYTES else (b"", "")


def example_from_schema(schema: Schema) -> Any:
    """Make a value that conforms to the types, bounds and formats of a JSON schema; patterns are ignored.

    Objects get all named properties, so that people see what there is.

    Raises:
        NoExample: if the value would be too large or recursive.
    """
    return _ExampleMaker(schema.get("$defs", {})).make(schema)


class _ExampleMaker:
    """Makes one example; ``definitions`` are the targets of ``$ref``."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._open: list[str] = []
        self._values = 0

    def make(self, schema: Schema | bool) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            raise NoExample("it would be too large")
        if isinstance(schema, bool):
            return _TEXT
        for keyword in ("default", "const"):
            if keyword in schema:
                return schema[keyword]
        if "$ref" in schema:
            return self._resolve(schema["$ref"].rpartition("/")[2])
        for keyword in ("examples", "enum"):
            if schema.get(keyword):
                return schema[keyword][0]
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._first(schema[keyword])
        return self._of_type(schema)

    def _resolve(self, name: str) -> Any:
        if name in self._open:
            raise NoExample("it would contain itself")
        self._open.append(name)
        try:
            return self.make(self._definitions[name])
        finally:
            self._open.pop()

    def _first(self, choices: Sequence[Schema]) -> Any:
        """Make the first choice that is possible and not null."""
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
            # An optional item ends the recursion.
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
