"""The Json adapter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.json_values import SPACES, VALUES, to_json
from uncork_workers.definition.adapters import InvalidInput, Json

DEEP = b"[" * 100_000 + b"]" * 100_000


@given(requests=st.lists(st.tuples(SPACES, VALUES, SPACES), max_size=6))
def test_merging_is_the_same_as_parsing_each_alone(requests: list[tuple[bytes, object, bytes]]) -> None:
    bodies = [before + to_json(value) + after for before, value, after in requests]

    merged = Json().merge(bodies)

    values = [value for _, value, _ in requests]
    assert merged == [item for body in bodies for item in Json().merge([body])] == values
    assert [to_json(item) for item in merged] == [to_json(value) for value in values]  # 1 is not True
    assert list(map(to_json, Json().merge_values(bodies))) == list(map(to_json, values))


@given(value=VALUES)
def test_a_neighbor_that_is_not_finite_changes_no_value(value: object) -> None:
    """Clients of TensorFlow Serving write NaN and infinity."""
    [mine, *others] = Json().merge([to_json(value), b'{"a": NaN, "b": "NaN"}', b"[Infinity, -Infinity]"])
    assert to_json(mine) == to_json(value)
    assert repr(others) == "[{'a': nan, 'b': 'NaN'}, [inf, -inf]]"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"nul", "invalid character"),
        (b"nan", "invalid character"),
        (b"[NaN,]", "malformed"),
        (b'[NaN,"\\ud800"]', "half of a character"),
        (b'[NaN,"\xed\xa0\x80"]', "malformed"),
        (b"[Infinity,1e999]", "malformed"),
        (b'{"a":1,}', "trailing comma"),
        (b"[1", "truncated|expected"),
        (b"1]", "trailing characters"),
        (b"1],[2", "trailing characters"),
        (b'"\xff"', "can't decode byte 0xff|Invalid UTF-8"),
        (b"1e999", "out of range"),
        pytest.param(DEEP, "nested too deeply", id="deep"),
    ],
)
def test_what_is_not_json_is_invalid_input(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"^not valid JSON: .*({reason})"):
        Json().merge([body])
    with pytest.raises(InvalidInput, match=r"^not valid JSON: "):
        Json().merge([b"1", body, b"2"])


@pytest.mark.parametrize(
    "body", [b"nul", b"NaN", b'["NaN",Infinity]', b"", b" ", b"1,2", b"1],[2", b"[1", b'"a', b'"\xff"', DEEP]
)
def test_a_value_that_nobody_checked_may_be_no_json(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^not valid JSON: "):
        Json().merge_values([b"1", body])


@pytest.mark.parametrize("bodies", [[b'"a', b'b"'], [b"1,2", b" "], [b'"a","b', b'c"'], [b"[1", b"2]"]])
def test_values_that_are_wrong_are_not_right_together(bodies: list[bytes]) -> None:
    """The answers of their neighbours would be theirs."""
    with pytest.raises(InvalidInput):
        Json().merge_values(bodies)
