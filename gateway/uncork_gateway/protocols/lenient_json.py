"""JSON of the Open Inference Protocol that msgspec does not read: NaN, infinity, halves of surrogate pairs.

Model servers and clients write such values, which must arrive unchanged. Each function decodes with msgspec.
If msgspec rejects a text, :mod:`uncork_gateway.protocols.raw_json` splits it, and only the parts other than
values are decoded.
"""

import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

from uncork_gateway.protocols import raw_json
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.raw_json import NULL, Malformed, without_strings
from uncork_gateway.protocols.tensors import FLOATS

_T = TypeVar("_T", bound=msgspec.Struct)
_NOT_FINITE = re.compile(rb"[NI]")
_members_decoder = Decoder(dict[str, Raw])
or_null_decoder: Decoder[dict[str, Raw] | None] = Decoder(dict[str, Raw] | None)
# The members of tensors that may have such values; they are never decoded.
_RAW = ("data", "parameters")


def read_members(
    text: bytes | Raw, *, name: str = "the body", decoder: Decoder[Any] = _members_decoder
) -> dict[str, Raw]:
    """Return the members of an object; the last of a repeated name counts. ``decoder`` may accept null.

    Raises:
        Malformed: if the text is not an object.
    """
    try:
        members: dict[str, Raw] | None = decode_json(decoder, text, "an object", name=name)
        return members or {}
    except Malformed as error:
        if not _may_be_lenient(error):
            raise
        try:
            return raw_json.read_object(bytes(text), name)
        except RecursionError as cause:
            raise Malformed(f"{name} is nested too deeply") from cause


def read_structs(
    decoder: Decoder[Any],
    kind: type[_T],
    text: Raw,
    expected: str,
    *,
    name: str,
) -> list[_T]:
    """Return the elements of a list as structs; their values may be lenient JSON. Null may mean no elements.

    Raises:
        Malformed: if the text is not a list of such structs.
    """
    try:
        structs: list[_T] | None = decode_json(decoder, text, expected, name=name)
        return structs or []
    except Malformed as error:
        if not (_may_be_lenient(error) and raw_json.is_list(text)):
            raise
    return [_read_struct(kind, element, expected, name) for element in raw_json.elements(text)]


def _read_struct(kind: type[_T], text: Raw, expected: str, name: str) -> _T:
    if not raw_json.is_object(text):
        raise Malformed(f"{name} must be {expected}: expected an object, got {bytes(text)[:20]!r}")
    members = raw_json.members(text)
    raw = {each: members.pop(each) for each in _RAW if each in members}
    parameters = raw.get("parameters", Raw(NULL))
    fields: dict[str, Any] = dict(raw)
    if bytes(parameters) == NULL:
        fields.pop("parameters", None)
    else:
        fields["parameters"] = read_members(parameters, name="parameters")
    try:
        fields |= {each: json.loads(bytes(value)) for each, value in members.items()}
        struct = msgspec.convert(fields, kind)
    # ValueError: of integers with thousands of digits.
    except (msgspec.ValidationError, ValueError) as error:
        raise Malformed(f"{name} must be {expected}: {error}") from error
    datatype = fields.get("datatype", "")
    if "data" in raw and datatype not in FLOATS and _NOT_FINITE.search(without_strings(bytes(raw["data"]))):
        raise Malformed(f"{name} is not valid JSON: NaN and Infinity are no values of {datatype}")
    return struct


def _may_be_lenient(error: Malformed) -> bool:
    """Return True if msgspec rejected a text's syntax, and not only its type."""
    cause = error.__context__  # mypyc sets no cause
    return isinstance(cause, msgspec.DecodeError) and not isinstance(cause, msgspec.ValidationError)
