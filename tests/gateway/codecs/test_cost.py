"""The cost of rows."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import SCALARS, VALUES, mutated, written
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.codecs.json import JsonCodec
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.errors import BadRequest
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.process.warmup import Example
from uncork_workers.wire.schema import ApiSettings

BY_FIELD = JsonCodec(make_weigh("n"))
OBJECTS = st.fixed_dictionaries({"n": VALUES}, optional={"text": SCALARS, "N": SCALARS})
NO_NUMBER = r"the cost field 'n' must be a number above 0 and at most 1000000000, "


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(("cost", "each"), [(1, 1), (3, 3), (2.5, 2.5), (0.1, 0.1), (1e-9, 2**-16)])
def test_a_number_is_what_each_row_weighs(cost: float, each: float) -> None:
    """Costs are rounded to multiples of about 0.000015."""
    codec = NdArrayCodec(make_weigh(cost), shape=(2,))

    for body, rows in ((b"[1,2]", 1), (b"[[1,2]]", 1), (b"[[1,2],[3,4],[5,6]]", 3)):
        assert codec.decode(body).cost.total == pytest.approx(rows * each, abs=rows * 2**-16)


@pytest.mark.parametrize(
    ("body", "cost"), [(b" [1, 2]\n", 6), (b"[ [1,2] , [30, 40]\n]", 13), (b"[[1,2]]", 5)]
)
def test_a_row_weighs_its_bytes(body: bytes, cost: int) -> None:
    """The length of each row as it arrived; white space and commas between rows cost nothing."""
    assert NdArrayCodec(make_weigh("bytes"), shape=(2,)).decode(body).cost.total == cost


@given(value=VALUES, data=st.data())
def test_a_value_weighs_its_bytes(value: object, data: st.DataObject) -> None:
    body = data.draw(written(value))

    assert JsonCodec(make_weigh("bytes")).decode(body).cost.total == len(body.strip())


@given(row=OBJECTS)
def test_a_field_says_what_a_row_weighs(row: dict[str, Any]) -> None:
    """Numbers cost their value, strings and nested values their bytes; anything else is rejected."""
    body, field = compact(row), row["n"]
    if isinstance(field, bool) or field is None or (isinstance(field, int | float) and not 0 < field <= 1e9):
        with pytest.raises(BadRequest, match=NO_NUMBER):
            BY_FIELD.decode(body)
        return
    marshalled = BY_FIELD.decode(body)

    assert marshalled.body == body
    if isinstance(field, int | float):
        assert marshalled.cost.total == pytest.approx(field, abs=2**-16)
    elif isinstance(field, str):
        assert marshalled.cost.total == max(1, len(compact(field)) - 2)
    else:
        assert marshalled.cost.total == len(compact(field))


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ('{"n": "\u00e4"}'.encode(), 2),
        (b'{"n": "\\u00e4"}', 6),
        (b'{"n": [1, 2] }', 6),
        (b'{"n": 2.5e2}', 250),
        (b'{"n": 1000000000}', 1e9),
        (b'{"n": 1e-300}', 2**-16),
        (b'{"\\u006e": 7}', 7),
        (b'{"n": 1, "n": 2}', 2),
    ],
)
def test_the_weight_of_a_field(body: bytes, cost: float) -> None:
    """Escapes count as written; of a repeated field the last one counts, as for the handler."""
    assert BY_FIELD.decode(body).cost.total == cost


@given(body=st.binary(max_size=30) | mutated(OBJECTS.flatmap(written)))
def test_whatever_is_accepted_weighs_something(body: bytes) -> None:
    """Any body gets 400, or a positive cost that sums without rounding errors."""
    try:
        cost = BY_FIELD.decode(body).cost.total
    except BadRequest:
        return
    assert cost is not None
    assert 0 < cost <= max(1e9, len(body))
    assert float(cost * 2**16).is_integer()


@given(numbers=st.lists(st.floats(0, 1e9, exclude_min=True), max_size=100), order=st.randoms())
def test_weights_that_are_taken_off_leave_nothing(numbers: list[float], order: Any) -> None:
    """After all costs are subtracted, in any order, the total is exactly 0."""
    costs = [
        BY_FIELD.decode(b'{"n": %b}' % repr(number).encode()).cost.total or math.nan for number in numbers
    ]
    total = 0.0
    for cost in costs:
        total += cost
    order.shuffle(costs)
    for cost in costs:
        total -= cost

    assert total == 0


@pytest.mark.parametrize("cost", [None, 1, 2.5, 1e-9, "bytes", "n"])
def test_a_worker_weighs_its_example_alike(cost: float | str | None) -> None:
    """The worker's warm-up and the dispatcher use the same cost."""
    body = b'{"n":"some text","m":[1,2]}'
    example = Example(api="a", sample=Sample(body), settings=ApiSettings(cost=cost))

    assert example.cost == JsonCodec(make_weigh(cost)).decode(body).cost.total
