"""The codec of JSON values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import VALUES, mutated, written
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.codecs.json import JsonCodec
from uncork_gateway.errors import BadRequest
from uncork_workers.definition.adapters import InvalidInput, Json
from uncork_workers.wire.forms import ValueForm

CODEC = JsonCodec()
BODIES = VALUES.flatmap(written)


@given(body=BODIES)
def test_any_value_is_one_row_and_travels_as_it_came(body: bytes) -> None:
    """Bodies are unchanged, so large integers and the digits of floats survive."""
    assert CODEC.decode(body) == Marshalled(body, rows=1, key=None, single=True)


@pytest.mark.parametrize(
    "body",
    [b"", b"NaN", b"1 2", b"1,2", b"1],[2", b"[1,]"],
)
def test_what_is_not_one_value_is_refused(body: bytes) -> None:
    """Also bodies that would become two values in a batch."""
    with pytest.raises(BadRequest, match=r"^the body is not valid JSON: .+"):
        CODEC.decode(body)


def test_nesting_without_end_is_refused() -> None:
    """A body of nothing but brackets gets 400 and affects no other request."""
    with pytest.raises(BadRequest, match="the body is not valid JSON: "):
        CODEC.decode(b"[" * 60_000)


LARGE = b'"%b"' % (b"x" * 65_534)


def test_the_worker_checks_large_values() -> None:
    assert CODEC.decode(LARGE) == Marshalled(LARGE, rows=1, form=ValueForm())
    assert CODEC.decode(LARGE + b"x") == Marshalled(LARGE + b"x", rows=1, form=ValueForm())
    assert CODEC.decode(LARGE[:-2] + b'"').form is None


def test_large_values_that_have_a_cost_are_checked_here() -> None:
    """The cost is computed from the value."""
    weighing = JsonCodec(make_weigh(2.0))

    assert weighing.decode(LARGE).cost.total == 2
    with pytest.raises(BadRequest, match=r"^the body is not valid JSON: .+"):
        weighing.decode(LARGE[1:] + b"x")


@given(body=st.binary(max_size=30) | mutated(BODIES))
def test_whatever_is_accepted_stays_one_value_among_others(body: bytes) -> None:
    """Any body gets 400 here or from the worker, or is exactly one row."""
    try:
        accepted = CODEC.decode(body)
    except BadRequest:
        return
    try:
        merged = Json().merge([b"1", accepted.body, b"2"])
    except InvalidInput:
        with pytest.raises(InvalidInput):
            Json().merge([accepted.body])
    else:
        assert len(merged) == 3
        assert (merged[0], merged[-1]) == (1, 2)
