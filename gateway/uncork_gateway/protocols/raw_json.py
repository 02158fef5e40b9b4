"""Splits JSON into the texts of its parts, and writes it from them, without changing a byte of a part.

msgspec splits. Python's ``json`` takes over for texts that model servers write but msgspec rejects: the bare
tokens NaN, Infinity and -Infinity, and escapes of half a surrogate pair. Both raise RecursionError on JSON
that is nested too deeply. A part may be where the whole was not: less of the stack may be left for it.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest
from uncork_workers.wire.json_faults import json_fault

_members_decoder = msgspec.json.Decoder(dict[str, Raw])
_elements_decoder = msgspec.json.Decoder(list[Raw])
# Numbers stay text: Python refuses to parse an integer with thousands of digits.
_lenient_decoder = json.JSONDecoder(parse_int=str, parse_float=str)
_MOST_LENIENT = 2**20
_NOT_A_PART = re.compile(r"[ \t\r\n,:]*")
_NUMERALS = b"0123456789.eE+- \t\r\n"
_KINDS = {b'"': "string", b"t": "boolean", b"f": "boolean", b"n": "null", b"[": "list", b"{": "object"}
# Without the plus signs, re would keep a state for each escape of a string.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{},:]|[^][{},:"\s]+', re.DOTALL)
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_MOST_TOKENS = 4096
# Of names that a few bytes repeat for each row: what any request may have, and how many times its bytes.
_MOST_NAMES_BYTES = 64 * 2**20
_FREE_BYTES = 2**20
_MOST_REPEATS = 24
_MOST_NESTED = 64
_TOO_DEEP = "the JSON is nested too deeply"
SPACE = b" \t\r\n"
NULL = b"null"
_QUOTE = ord('"')
_OPEN_LIST, _OPEN_OBJECT = b"[{"

Parts = bytes | Sequence[bytes] | Mapping[str, "Parts"]
"""A text, the texts of a list's elements, or the members of an object."""


class Malformed(BadRequest):
    """A body violates the protocol: 400 if a client sent it, 502 if a model server did."""


class TooMany(BadRequest):
    """A request has too many rows or values for the gateway to process one by one."""


def check_utf8(body: bytes, name: str = "the body") -> None:
    """Check a text whose raw parts msgspec does not check.

    Raises:
        Malformed: if the text, which errors call ``name``, is not UTF-8.
    """
    try:
        if not body.isascii():
            body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{name} is not valid UTF-8: {error.reason} at byte {error.start}") from error


def read_object(body: bytes, name: str = "the body") -> dict[str, Raw]:
    """Check all of a JSON object, and return its members; the last of a repeated name counts.

    Raises:
        Malformed: if the body, which errors call ``name``, is not an object.
        TooMany: if it has too many values, and msgspec cannot read it.
    """
    check_utf8(body, name)
    try:
        return _members_decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Malformed(f"{name} is not a JSON object") from error
    except msgspec.DecodeError:
        return _read_object_leniently(body, name)


def read_only_list(body: bytes, name: str) -> list[Raw] | None:
    """Return the list ``name`` if it is an object's only member; None for any other body.

    This parses once; :func:`read_object` and :func:`elements` parse twice.
    """
    try:
        return _only_list(name).decode(body).rows if body.isascii() else None
    except msgspec.MsgspecError:
        return None


@cache
def _only_list(name: str) -> msgspec.json.Decoder[Any]:
    kind = msgspec.defstruct(
        "OnlyList", [("rows", list[Raw])], rename={"rows": name}, forbid_unknown_fields=True
    )
    return msgspec.json.Decoder(kind)


def members(text: Raw) -> dict[str, Raw]:
    """Return the members of an object in a valid text; the last of a repeated name counts.

    Raises:
        Malformed: if the text is nested too deeply.
    """
    try:
        return _members_decoder.decode(text)
    except RecursionError as error:
        raise Malformed(_TOO_DEEP) from error
    except msgspec.DecodeError:
        return _as_members(_parts(bytes(text).decode()))


def elements(text: Raw) -> list[Raw]:
    """Return the elements of a list in a valid text; raises as :func:`members`."""
    try:
        return _elements_decoder.decode(text)
    except RecursionError as error:
        raise Malformed(_TOO_DEEP) from error
    except msgspec.DecodeError:
        return [Raw(part.encode()) for part in _parts(bytes(text).decode())]


def is_list(text: Raw) -> bool:
    return memoryview(text)[0] == _OPEN_LIST


def is_object(text: Raw) -> bool:
    return memoryview(text)[0] == _OPEN_OBJECT


def form_of(text: Raw) -> Hashable:
    """Return the kind and shape of a valid value; rows that fit into one array have equal ones.

    Numbers are one kind: clients write 1 for 1.0. A list has the form of its first element, and its length.
    To bound the work, values nested deeper than 64 lists and objects are ignored, and of those after the
    first 4096 tokens, only the commas count.
    """
    row = bytes(text)
    skeleton = row.translate(None, _NUMERALS)
    if b'"' not in skeleton:
        skeleton = skeleton.replace(b"NaN", b"").replace(b"Infinity", b"")
    if not skeleton.strip(b"[],") and not (b"[]" in skeleton and _has_empty_list(row)):
        return skeleton
    found = _TOKEN.finditer(row)
    tokens = (match[0] for match in islice(found, _MOST_TOKENS))
    form = _form(tokens, next(tokens), 1)
    return form if next(found, None) is None else (form, row.count(b","))


def forms_of(values: Sequence[Raw]) -> Hashable:
    """Return the form of the first value, or the forms of all if it has no text and they differ.

    One array of such values would change them: with a text in one row, the numbers in all rows become texts.
    """
    first = form_of(values[0])
    if len(values) == 1 or b'"' in bytes(values[0]):
        return first
    joined = b";".join(values).replace(b"true", b"false")
    numbers = joined.replace(b"NaN", b"").replace(b"Infinity", b"")
    skeletons = set(numbers.translate(None, _NUMERALS).split(b";"))
    if len(skeletons) == 1 and not (b"[]" in skeletons.pop() and _has_empty_list(joined)):
        return first
    forms = frozenset(map(form_of, values))
    return first if len(forms) == 1 else forms


def _has_empty_list(text: bytes) -> bool:
    """Return True if a text has an empty list; without numerals, a list of one number looks like it."""
    return b"[]" in text.translate(None, SPACE)


def _form(tokens: Iterator[bytes], first: bytes, depth: int) -> Hashable:
    """Return the form of the value that begins with token ``first``, and consume its tokens."""
    if depth > _MOST_NESTED or first not in _OPENING:
        _skip(tokens, first)
        return _KINDS.get(first[:1], "number")
    if first == b"{":
        return _object_form(tokens, depth)
    length, form = 0, None
    for token in tokens:
        if token == b"]":
            break
        if token == b",":
            continue
        length += 1
        if length == 1:
            form = _form(tokens, token, depth + 1)
        else:
            _skip(tokens, token)
    return length, form


def _object_form(tokens: Iterator[bytes], depth: int) -> Hashable:
    members: dict[bytes, Hashable] = {}
    for name in tokens:
        if name == b"}":
            break
        if name != b",":
            next(tokens, b"")  # the colon
            members[name] = _form(tokens, next(tokens, b""), depth + 1)
    return tuple(sorted(members.items(), key=itemgetter(0)))


def _skip(tokens: Iterator[bytes], first: bytes) -> None:
    """Consume the rest of the value that begins with token ``first``."""
    depth = int(first in _OPENING)
    while depth and (token := next(tokens, None)):
        depth += (token in _OPENING) - (token in _CLOSING)


def written(value: Parts) -> bytes:
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def objects(names: Sequence[str], rows: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return the text of each row as an object, with column names for its values.

    Raises:
        BadRequest: if the names, repeated in each row, would take too much memory.
    """
    starts = [quoted(name) + b":" for name in names]
    once = sum(map(len, starts))
    size = once * len(rows)
    if size > _FREE_BYTES:
        sent = once + sum(map(len, chain.from_iterable(rows)))
        most = min(_MOST_NAMES_BYTES, most_repeated_bytes(sent))
        if size > most:
            raise BadRequest(
                f"the names of {plural(len(names), 'column')} for {plural(len(rows), 'row')} take {size} "
                f"bytes; at most {most} are accepted: send shorter names, or fewer rows in one request"
            )
    return [b"{%b}" % b",".join([b"%b%b" % pair for pair in zip(starts, row, strict=True)]) for row in rows]


def most_repeated_bytes(sent: int) -> int:
    """Return how many bytes a request of ``sent`` bytes may become by what is repeated for each row."""
    return max(_FREE_BYTES, _MOST_REPEATS * sent)


def quoted(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can only escape
        return json.dumps(text).encode()


def without_strings(text: bytes) -> bytes:
    """Replace strings by digits, so that every comma and bracket is structural."""
    if b'"' not in text:
        return text
    # Pairs of backslashes first: one that is left before a quote escapes it. No other escape has quotes.
    text = text.replace(rb"\\", b"00").replace(rb"\"", b"00")
    characters = np.frombuffer(text, np.uint8)
    is_quote = characters == _QUOTE
    is_string = np.logical_xor.accumulate(is_quote) | is_quote
    replaced: bytes = np.where(is_string, np.uint8(ord("0")), characters).tobytes()
    return replaced


def _write(value: Parts, pieces: list[bytes]) -> None:
    """Append the pieces of a value, so that large texts are copied only once, when all are joined."""
    if isinstance(value, bytes | Raw):
        pieces.append(value)
    elif isinstance(value, Mapping):
        mark = b"{"
        for name, part in value.items():
            pieces += (mark, quoted(name), b":")
            _write(part, pieces)
            mark = b","
        pieces.append(b"}" if value else b"{}")
    else:
        between = [b","] * (2 * len(value) - 1)
        between[::2] = value
        pieces += (b"[", *between, b"]")


def _read_object_leniently(body: bytes, name: str) -> dict[str, Raw]:
    _check_lenient(body, name)
    text = body.decode().strip(" \t\r\n")
    try:
        _lenient_decoder.decode(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"{name} is not valid JSON: {json_fault(body, error)}") from error
    if not text.startswith("{"):
        raise Malformed(f"{name} is not a JSON object")
    return _as_members(_parts(text))


def _check_lenient(body: bytes, name: str) -> None:
    """Raise TooMany if there are too many values for Python's parser, which builds an object for each."""
    if _separators(body) > _MOST_LENIENT and _separators(without_strings(body)) > _MOST_LENIENT:
        raise TooMany(
            f"{name} with NaN, Infinity or half a surrogate pair may have at most {_MOST_LENIENT} values; "
            "send several requests"
        )


def _separators(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def _parts(text: str) -> list[str]:
    """Return the elements of a valid list, or the names and values of a valid object in turn."""
    parts: list[str] = []
    at = _next_part(text, 1)
    while at < len(text) - 1:
        try:
            _, end = _lenient_decoder.raw_decode(text, at)
        except RecursionError as error:
            raise Malformed(_TOO_DEEP) from error
        parts.append(text[at:end])
        at = _next_part(text, end)
    return parts


def _next_part(text: str, at: int) -> int:
    gap = _NOT_A_PART.match(text, at)
    return gap.end() if gap else at


def _as_members(parts: list[str]) -> dict[str, Raw]:
    return {
        json.loads(name): Raw(value.encode()) for name, value in zip(parts[::2], parts[1::2], strict=True)
    }
