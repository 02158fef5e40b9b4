"""The values of ``group_by``: their sources, their texts, and fields of rows that are read alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.wire.groups import (
    MAX_VALUE_BYTES,
    FieldReader,
    Source,
    group_of_row,
    sources_of,
    value_of,
    value_text,
)

# Half surrogates are no text: msgspec and pydantic refuse them, so a worker never gets such a row.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))
NAMES = ("language", "ü", "two words", "a", "")


@pytest.mark.parametrize(
    ("group_by", "sources"),
    [
        (None, []),
        ("language", [Source("field", "language")]),
        ("header:X-Lang", [Source("header", "x-lang")]),
        ("parameter:Beams:2", [Source("parameter", "Beams:2")]),
        (
            ("a", "header:a", "parameter:a"),
            [Source("field", "a"), Source("header", "a"), Source("parameter", "a")],
        ),
    ],
)
def test_where_values_come_from(group_by: object, sources: list[Source]) -> None:
    assert sources_of(group_by) == sources


@given(one=SCALARS, other=SCALARS)
def test_texts_differ_exactly_if_json_does(one: Any, other: Any) -> None:
    """Whatever escapes a client uses; 1, 1.0, "1" and true are four groups."""
    texts = [
        value_text(json.dumps(value, ensure_ascii=escaped).encode())
        for value in (one, other)
        for escaped in (True, False)
    ]
    assert texts[0] == texts[1]
    assert (texts[0] == texts[2]) == (json.dumps(one) == json.dumps(other))
    found = value_of(texts[0])
    assert (type(found), found) == (type(one), one)


@pytest.mark.parametrize("text", ["null", "[1]", "{}", "NaN", "Infinity", "-Infinity"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a string, a number, true or false, got "):
        value_text(text.encode())


def test_values_are_short() -> None:
    """Counted in UTF-8, without quotes and escapes."""
    for text in ("x" * MAX_VALUE_BYTES, "ü" * (MAX_VALUE_BYTES // 2), "\x01" * MAX_VALUE_BYTES):
        assert value_of(value_text(json.dumps(text).encode())) == text
        with pytest.raises(ValueError, match=r"^must have at most 256 bytes$"):
            value_text(json.dumps(text + "x").encode())
    assert value_of(value_text(b"1" * MAX_VALUE_BYTES)) == int("1" * MAX_VALUE_BYTES)
    for long in (b"1" * (MAX_VALUE_BYTES + 1), b'"%b"' % (b"x" * 10**6)):
        with pytest.raises(ValueError, match="at most 256 bytes"):
            value_text(long)


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(ValueError, match="is not valid JSON"):
        value_text(b'"\\ud800"')


@given(
    members=st.lists(st.tuples(st.sampled_from(NAMES) | TEXTS, VALUES), max_size=6),
    escaped=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_fields_are_read_as_a_parser_reads_them(
    members: list[tuple[str, Any]], escaped: bool, indent: int | None
) -> None:
    """The last of a repeated name counts; names may have escapes, and occur in nested objects too."""
    names = [name for name in NAMES if name]
    pairs = [
        f"{json.dumps(name, ensure_ascii=escaped)}: {json.dumps(value, indent=indent)}"
        for name, value in members
    ]
    row = "{" + " ,\n".join(pairs) + "}"

    found = FieldReader(names).read(row.encode())

    wanted = json.loads(row)
    assert [json.loads(text) for text in found if text is not None] == [
        wanted[name] for name in names if name in wanted
    ]
    assert [text is None for text in found] == [name not in wanted for name in names]


def test_the_group_of_a_row() -> None:
    sources = sources_of(("header:x", "b", "parameter:p", "a"))
    assert value_of(group_of_row(b'{"a": 1, "b": "\\u0031"}', sources, is_single=False)) == (
        None,
        "1",
        None,
        1,
    )
    assert value_of(group_of_row(b'{"a": 1.0}', sources_of("a"), is_single=True)) == 1.0
    with pytest.raises(ValueError, match="the field 'b' of group_by is missing"):
        group_of_row(b'{"a": 1}', sources, is_single=False)
    with pytest.raises(ValueError, match="the field 'a' of group_by must be a string"):
        group_of_row(b'{"a": []}', sources_of("a"), is_single=True)
