"""The values of ``group_by``: requests share a batch only if theirs are equal.

A value is kept as its JSON text, so that ``1``, ``"1"``, ``1.0`` and ``true`` differ. Escapes in strings make
no difference. The values of several sources are a JSON list.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

MAX_VALUE_BYTES = 256
NO_VALUE = b"null"
"""The value of a header that a request does not have."""

_PREFIXES: Mapping[str, Literal["header", "parameter"]] = {"header:": "header", "parameter:": "parameter"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(r'[^:"\\\x00-\x1f]+')
# An escape has six bytes for one byte of text.
_LONGEST_STRING = 6 * MAX_VALUE_BYTES + len(b'""')
_KINDS = {b"n": "null", b"[": "a list", b"{": "an object"}
_SCALARS = frozenset(b"%c" % byte for byte in b"-0123456789tf")
_TOO_LONG = f"must have at most {MAX_VALUE_BYTES} bytes"
_SHOWN_BYTES = 20
_string_decoder = msgspec.json.Decoder(str)
FORMS = "the name of a field, 'header:NAME' or 'parameter:NAME'"


class Source(NamedTuple):
    """The place in a request that a value of ``group_by`` comes from. Names of headers are in lower case."""

    kind: Literal["field", "header", "parameter"]
    name: str


def sources_of(group_by: object) -> list[Source]:
    """Return the sources that ``group_by`` names, in order; none if it is None.

    Raises:
        ValueError: if it names none, one twice, or anything else.
    """
    if group_by is None:
        return []
    names = [group_by] if isinstance(group_by, str) else group_by
    if not isinstance(names, tuple | list) or not names:
        raise ValueError(f"group_by must be {FORMS}, or a tuple of them, got {group_by!r}")
    sources = [_source(name) for name in names]
    for at, source in enumerate(sources):
        if source in sources[:at]:
            raise ValueError(f"group_by names {names[at]!r} twice; remove one")
    return sources


def is_header_name(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _source(text: object) -> Source:
    if isinstance(text, str):
        prefix, colon, name = text.partition(":")
        kind = _PREFIXES.get(prefix + colon)
        if kind == "header" and is_header_name(name):
            return Source(kind, name.lower())
        if kind == "parameter" and name:
            return Source(kind, name)
        if _FIELD.fullmatch(text):
            return Source("field", text)
    raise ValueError(f"group_by must be {FORMS}, or a tuple of them, got {text!r}")


def value_text(value: bytes | Raw) -> bytes:
    """Return the text that stands for a JSON value.

    Raises:
        ValueError: if it is null, a list, an object, or longer than 256 bytes. The message continues the
            name of the value.
    """
    text = bytes(value)
    first = text[:1]
    if first == b'"':
        return _string_text(text)
    if first not in _SCALARS or text.endswith(b"y"):  # -Infinity
        kind = _KINDS.get(first, text[:_SHOWN_BYTES].decode(errors="replace"))
        raise ValueError(f"must be a string, a number, true or false, got {kind}")
    if len(text) > MAX_VALUE_BYTES:
        raise ValueError(_TOO_LONG)
    return text


def _string_text(text: bytes) -> bytes:
    if len(text) > _LONGEST_STRING:
        raise ValueError(_TOO_LONG)
    try:
        decoded = _string_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if len(decoded.encode()) > MAX_VALUE_BYTES:
        raise ValueError(_TOO_LONG)
    return msgspec.json.encode(decoded)


def may_have(schema: Mapping[str, Any], field: str, root: Mapping[str, Any]) -> bool:
    """Return whether a JSON schema allows objects with this field; unknown keywords allow anything."""
    reference = schema.get("$ref", "")
    if reference:
        schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    choices = schema.get("anyOf")
    if choices is not None:
        return any(may_have(choice, field, root) for choice in choices)
    types = schema.get("type", "object")
    if "object" not in ([types] if isinstance(types, str) else types):
        return False
    return field in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def joined(texts: Sequence[bytes], *, is_single: bool) -> bytes:
    """Return the text of a group from the texts of its values."""
    return texts[0] if is_single else b"[%b]" % b",".join(texts)


def value_of(text: bytes) -> Any:
    """Return a group's value for handlers, from its text: values of several sources as a tuple."""
    # Unlike msgspec, json reads integers and floats of any size.
    value = json.loads(text)
    return tuple(value) if isinstance(value, list) else value


def group_of_row(row: bytes, sources: Sequence[Source], *, is_single: bool) -> bytes:
    """Return the text of the group of a request with one row, without headers and parameters.

    Raises:
        ValueError: if the row has no value that ``group_by`` accepts.
    """
    reader = FieldReader([source.name for source in sources if source.kind == "field"])
    found = iter(reader.read(row) if reader.names else ())
    texts = [NO_VALUE] * len(sources)
    for at, source in enumerate(sources):
        if source.kind == "field":
            text = next(found)
            if text is None:
                raise ValueError(f"the field {source.name!r} of group_by is missing")
            try:
                texts[at] = value_text(text)
            except ValueError as error:
                raise ValueError(f"the field {source.name!r} of group_by {error}") from None
    return joined(texts, is_single=is_single)


class FieldReader:
    """Reads some fields of rows, without building the rest of them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        attributes = [f"field_{at}" for at in range(len(names))]
        kind = msgspec.defstruct(
            "Fields",
            [(attribute, Raw, Raw()) for attribute in attributes],
            rename=dict(zip(attributes, names, strict=True)),
        )
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def read(self, row: bytes | Raw) -> list[bytes | None]:
        """Return the JSON text of each field; None if it is missing. Of a repeated field, the last counts.

        Raises:
            msgspec.DecodeError: if the row is not valid JSON; ValidationError if it is not an object.
        """
        return self.texts(self.decoder.decode(row))

    def texts(self, fields: Any) -> list[bytes | None]:
        return [bytes(text) or None for text in msgspec.structs.astuple(fields)]
