"""The Text adapter."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.json_values import SPACES
from uncork_workers.definition.adapters import InvalidInput, Text
from uncork_workers.wire.forms import TensorForm

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(texts=st.lists(st.tuples(SPACES, TEXTS, SPACES), max_size=6), as_ascii=st.booleans())
def test_merging_is_the_same_as_parsing_each_alone(
    texts: list[tuple[bytes, str, bytes]], as_ascii: bool
) -> None:
    bodies = [
        before + json.dumps(text, ensure_ascii=as_ascii).encode() + after for before, text, after in texts
    ]

    merged = Text().merge(bodies)

    assert merged == [item for body in bodies for item in Text().merge([body])]
    assert merged == [text for _, text, _ in texts]


@pytest.mark.parametrize("body", [b"1", b"null", b'["a"]', b'{"a":"b"}', b'"a', b'"\xff"', b'"a"],["b"'])
def test_what_is_not_a_string_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^each row must be a JSON string: "):
        Text().merge([b'"good"', body])


def test_texts_come_as_tensors_too() -> None:
    assert Text().schema() == {"type": "string"}
    texts = ["é", ""]
    body = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)

    assert Text().merge_tensors([body], TensorForm("BYTES", ()), [2]) == texts


@pytest.mark.parametrize("form", [TensorForm("INT64", ()), TensorForm("BYTES", (1,))])
def test_other_tensors_are_no_texts(form: TensorForm) -> None:
    with pytest.raises(InvalidInput, match=r"with the shape \(rows,\), got "):
        Text().merge_tensors([b"\0" * 8], form, [1])
