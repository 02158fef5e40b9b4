"""The codec of texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gateway.codecs.bodies import mutated, written
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import Cost, make_weigh
from uncork_gateway.codecs.text import PLAIN, TextCodec, to_utf8
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.definition.adapters import InvalidInput, Text
from uncork_workers.wire.forms import TensorForm
from uncork_workers.wire.schema import JSON

CODEC = TextCodec()
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(text=TEXTS.filter(lambda text: not text.startswith("\ufeff")), data=st.data())
def test_a_text_is_the_same_plain_and_as_json(text: str, data: st.DataObject) -> None:
    """Plain and JSON texts share batches."""
    plain = CODEC.decode(text.encode(), PLAIN)
    as_json = CODEC.decode(data.draw(written(text)), JSON)

    assert replace(plain, body=b"") == replace(as_json, body=b"") == Marshalled(b"", rows=1)
    assert Text().merge([plain.body, as_json.body]) == [text, text]


def test_a_tensor_of_strings_shares_batches_with_other_texts() -> None:
    """A tensor stays as it is; the cost is that of its JSON."""
    tensor = Tensor(name="x", datatype="BYTES", shape=(2,), form="binary", data=b"\1\0\0\0a\0\0\0\0")

    asked = CODEC.marshal_tensor(tensor)
    weighed = TextCodec(make_weigh("bytes")).marshal_tensor(tensor)

    form = TensorForm("BYTES", ())
    assert asked == Marshalled(tensor.data, rows=2, single=False, form=form)
    assert asked.key == CODEC.decode(b"a", PLAIN).key
    assert weighed == replace(asked, cost=Cost(5, 3, [3, 2]))


def test_a_byte_order_mark_is_no_part_of_a_text() -> None:
    assert json.loads(CODEC.decode("\ufeffa\ufeff".encode()).body) == "a\ufeff"


@given(
    body=st.binary(max_size=20) | mutated(TEXTS.flatmap(written)), media_type=st.sampled_from([PLAIN, JSON])
)
def test_whatever_is_accepted_stays_one_text_among_others(body: bytes, media_type: str) -> None:
    try:
        accepted = CODEC.decode(body, media_type)
    except BadRequest:
        return
    try:
        merged = Text().merge([b'"1"', accepted.body, b'"2"'])
    except InvalidInput:
        with pytest.raises(InvalidInput):
            Text().merge([accepted.body])
    else:
        assert (len(merged), merged[0], merged[-1]) == (3, "1", "2")


def test_rows_of_other_protocols_travel_together() -> None:
    assert CODEC.marshal([b'"a"', b'"b"']) == Marshalled(b'"a","b"', rows=2, single=False)


@pytest.mark.parametrize(("cost", "expected"), [(None, None), (2.5, 2.5), ("bytes", 4)])
def test_texts_are_weighed_as_json(cost: float | str | None, expected: float | None) -> None:
    codec = TextCodec(make_weigh(cost))

    assert codec.decode(b"ab", PLAIN).cost.total == codec.decode(b' "ab" ', JSON).cost.total == expected
    assert codec.marshal([b'"ab"']).cost.total == expected


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/plain", "utf-8"),
        ("text/plain; charset=UTF-8", "utf-8"),
        ("text/plain; charset=utf8", "utf-8"),
        ("text/plain;Charset=us-ascii", "ascii"),
        ("text/csv; header=present; charset=ISO-8859-1", "latin-1"),
        ('text/plain; charset="windows-1252"', "cp1252"),
        ("text/plain; charset=utf-16", "utf-16"),
        ("text/plain; charset=UTF-16LE", "utf-16-le"),
        ("text/plain; charset=shift_jis", "shift_jis"),
    ],
)
def test_any_charset_that_is_named_will_do(content_type: str, charset: str) -> None:
    text = "ab" if charset == "ascii" else "日本" if charset == "shift_jis" else "ßé"

    assert to_utf8(text.encode(charset), content_type).decode() == text
