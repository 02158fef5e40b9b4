"""Splitting of results into responses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.workers.json_values import SCALARS, VALUES
from uncork_workers.definition.outputs.encoding import Array, CompleteResponse, Encoded, as_array, encode
from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.definition.outputs.split import SplitResults, join_chunks, split_results
from uncork_workers.wire.forms import TensorForm, Wanted
from uncork_workers.wire.schema import CSV, NPY

EXCEPTIONS = st.sampled_from(
    [
        Rejected(422, "no"),
        Rejected(500, "é"),
        b"raw",
        Response({"a": 1}, 201, {"x-a": "b"}),
        Response(None, 204),
    ]
)
COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=5)


def answers(results: Encoded | Array, counts: Sequence[int]) -> list[bytes | CompleteResponse]:
    return list(split_results(results, counts).bodies)


def alone(results: Any, counts: Sequence[int], accept: str) -> list[bytes | CompleteResponse]:
    given: list[bytes | CompleteResponse] = []
    end = 0
    for count in counts:
        start, end = end, end + count
        given += answers(encode(results[start:end], expected=count, accept=accept), [count])
    return given


def together(
    results: Any, counts: Sequence[int], accept: str, cuts: set[int]
) -> list[bytes | CompleteResponse]:
    ends = sorted({cut for cut in cuts if 0 < cut < len(results)} | {len(results)})
    starts = [0, *ends[:-1]]
    parts = [
        encode(results[start:end], expected=end - start, accept=accept)
        for start, end in zip(starts, ends, strict=True)
    ]
    return answers(join_chunks(parts), counts)


CUTS = st.sets(st.integers(1, 14), max_size=4)


@given(counts=COUNTS, cuts=CUTS, data=st.data())
def test_json_in_company_is_json_alone(counts: list[int], cuts: set[int], data: st.DataObject) -> None:
    results = data.draw(st.lists(VALUES, min_size=sum(counts), max_size=sum(counts)))

    assert together(results, counts, "", cuts) == alone(results, counts, "")


@given(counts=COUNTS, cuts=CUTS, data=st.data(), names=st.lists(st.text("ab,\n"), max_size=3, unique=True))
def test_csv_in_company_is_csv_alone(
    counts: list[int], cuts: set[int], data: st.DataObject, names: list[str]
) -> None:
    row: st.SearchStrategy[Any] = SCALARS
    if names:
        row = st.tuples(*[SCALARS] * len(names)).map(lambda cells: dict(zip(names, cells, strict=True)))
    results = data.draw(st.lists(row, min_size=sum(counts), max_size=sum(counts)))

    dealt = together(results, counts, CSV, cuts)

    assert dealt == alone(results, counts, CSV)
    assert all(isinstance(answer, CompleteResponse) and answer.content_type == CSV for answer in dealt)


ARRAYS = npst.arrays(
    st.sampled_from(["<f4", ">f8", "<f8", "<i2", ">u8", "?", "<f2"]),
    npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3).filter(lambda shape: shape[0] > 0),
)


@given(array=ARRAYS, cuts=CUTS, data=st.data())
def test_an_array_is_dealt_out_raw_and_as_json(
    array: np.ndarray[Any, Any], cuts: set[int], data: st.DataObject
) -> None:
    """Raw rows are little-endian; JSON is the same as where no row is raw."""
    counts = data.draw(COUNTS)
    # NumPy's resize changes the byte order to that of this machine.
    results = np.resize(array, (sum(counts), *array.shape[1:])).astype(array.dtype, order="F")
    wanted: st.SearchStrategy[Wanted] = st.sampled_from(["", "npy", "tensors"])
    raw = data.draw(st.lists(wanted, min_size=len(counts), max_size=len(counts)))
    ends = sorted({cut for cut in cuts if cut < len(results)} | {len(results)})
    parts = [as_array(some, expected=len(some)) for some in np.split(results, ends[:-1])]

    dealt = split_results(join_chunks([part for part in parts if part is not None]), counts, raw)

    form, end = as_array(results, expected=len(results)), 0
    assert form is not None
    assert form.form.shape == array.shape[1:]
    texts = alone(results, counts, "")
    for at, (answer, count) in enumerate(zip(dealt.bodies, counts, strict=True)):
        start, end = end, end + count
        if not raw[at]:
            assert (answer, dealt.forms[at]) == (texts[at], form.form)
            continue
        assert isinstance(answer, bytes)
        assert dealt.forms[at] == TensorForm(form.form.datatype, form.form.shape)
        back = np.frombuffer(answer, array.dtype.newbyteorder("<")).reshape(count, *array.shape[1:])
        np.testing.assert_array_equal(back, results[start:end])


@given(
    data=st.data(), count=st.integers(1, 8), cuts=CUTS, accept=st.sampled_from(["", CSV, NPY, "image/png"])
)
def test_whole_answers_in_company_are_those_alone(
    data: st.DataObject, count: int, cuts: set[int], accept: str
) -> None:
    results = data.draw(st.lists(EXCEPTIONS | SCALARS, min_size=count, max_size=count))

    dealt = together(results, [1] * count, accept, cuts)

    assert dealt == alone(results, [1] * count, accept)
    for result, answer in zip(results, dealt, strict=True):
        if isinstance(result, Rejected):
            assert answer == CompleteResponse(result.status, result.detail.encode())


SHORT, LONG = np.zeros(2, "f4"), np.ones(3, "f4")
MASKED = np.ma.masked_array([1, 2], [False, True], "i2")


@pytest.mark.parametrize("wanted", ["", "npy", "tensors"])
@pytest.mark.parametrize(
    "results",
    [
        [SHORT, LONG],
        [SHORT, Rejected(422, "no")],
        [SHORT[0], Rejected(422, "no")],
        [LONG, None],
        [None, LONG],
        [{"a": SHORT, "b": 1}, {"a": LONG, "b": 2}],
        [{"a": SHORT}, Rejected(422, "no")],
        [{"a": None}, {"a": SHORT}],
        [{"a": "AACAPw=="}, {"a": SHORT}],
        [None, {"a": SHORT}],
        [{"a": 0.0}, {"a": SHORT[0]}],
        [{"a": SHORT, "b": None}, {"a": SHORT, "b": LONG}],
        {"a": [None, SHORT[0]]},
        MASKED,
        {"a": MASKED},
        pd.Series([1, None], dtype="UInt8"),
        {"a": pd.Series([True, None], dtype="boolean"), "b": pd.Series([1, None], dtype="Int32")},
        {"a": [SHORT, LONG], "b": np.zeros(2, "i1")},
    ],
)
def test_arrays_in_company_have_the_form_that_they_have_alone(results: Any, wanted: Wanted) -> None:
    def dealt(start: int, end: int) -> SplitResults:
        some: Any = (
            {name: column[start:end] for name, column in results.items()}
            if isinstance(results, dict)
            else results[start:end]
        )
        raw = [wanted] * (end - start)
        array = as_array(some, expected=end - start) if wanted else None
        encoded = array or encode(some, expected=end - start, as_tensors=bool(wanted))
        return split_results(encoded, [1] * (end - start), raw if wanted else ())

    both = dealt(0, 2)

    assert any(form is not None for form in both.forms)
    for at in range(2):
        one = dealt(at, at + 1)
        assert (both.bodies[at], both.forms[at]) == (one.bodies[0], one.forms[0])


def test_a_request_is_rejected_for_one_of_its_rows() -> None:
    """By the first rejected row; other requests get their rows."""
    results = [1, 2, Rejected(422, "first"), Rejected(400, "second"), 5]

    assert answers(encode(results, expected=5), [1, 3, 1]) == [b"1", CompleteResponse(422, b"first"), b"5"]
    assert answers(encode(results, expected=5, accept=CSV), [1, 3, 1]) == [
        CompleteResponse(200, b"0\r\n1\r\n", CSV),
        CompleteResponse(422, b"first"),
        CompleteResponse(200, b"0\r\n5\r\n", CSV),
    ]


def test_a_rejection_may_quote_half_of_a_character() -> None:
    assert answers(encode([Rejected(400, "\ud800"), 1], expected=2), [1, 1]) == [
        CompleteResponse(400, b"\\ud800"),
        b"1",
    ]


def test_a_rejection_goes_before_a_response() -> None:
    encoded = encode([Response("x"), Rejected(400, "no")], expected=2)

    assert answers(encoded, [2]) == [CompleteResponse(400, b"no")]


@pytest.mark.parametrize("result", [b"x", Response("x"), Response(b"", 204)])
def test_a_request_of_several_rows_has_no_room_for_whole_answers(result: object) -> None:
    message = "^a request with several rows cannot be answered with a file or a Response$"
    with pytest.raises(WrongResult, match=message):
        split_results(encode([1, result], expected=2), [2])


def test_results_of_calls_that_differ_are_not_joined() -> None:
    """Rows of one call would appear under the header of another."""
    pairs = [
        (encode([{"a": 1}], expected=1, accept=CSV), encode([{"b": 1}], expected=1, accept=CSV)),
        (encode([1], expected=1, accept=CSV), encode([1], expected=1)),
    ]
    for one, other in pairs:
        for parts in ([one, other], [other, one]):
            with pytest.raises(WrongResult, match=r"^the handler's results differ in "):
                join_chunks(parts)


def test_a_call_without_rows_differs_from_none() -> None:
    """All of its requests may have been rejected."""
    lines = encode([{"a": 1}], expected=1, accept=CSV)
    rejected = encode([Rejected(400, "no")], expected=1, accept=CSV)

    for parts, counts in (([lines, rejected], [1, 1]), ([rejected, lines], [1, 1])):
        assert answers(join_chunks(parts), counts).count(CompleteResponse(200, b"a\r\n1\r\n", CSV)) == 1
    assert answers(join_chunks([rejected, rejected]), [2]) == [CompleteResponse(400, b"no")]


@pytest.mark.parametrize("other", [np.zeros((1, 3)), np.zeros((1, 2), "f4"), np.zeros((1, 0))])
def test_arrays_of_several_calls_that_differ_keep_their_forms(other: Any) -> None:
    first = np.zeros((1, 2))
    parts = [part for one in (first, other) if (part := as_array(one, expected=1)) is not None]

    dealt = split_results(join_chunks(parts), [1, 1], ["npy", ""])

    assert dealt.bodies == [first.tobytes(), *encode(other, expected=1).rows]
    assert dealt.forms == [TensorForm("FP64", (2,)), parts[1].form]


def test_calls_of_which_one_returns_no_array_are_json() -> None:
    """For all requests: a response in another form is better than none."""
    one, other = as_array(np.zeros((1, 2)), expected=1), encode([[0.0, 0.0]], expected=1)
    assert one is not None

    dealt = split_results(join_chunks([one, other]), [1, 1], ["npy", ""])

    assert dealt == SplitResults([b"[0.0,0.0]", *other.rows], [None, None])


HALF = np.float32(0.5)


@pytest.mark.parametrize("raw", [(), ("", "", "")])
@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ([[{"score": None}], [{"score": HALF}]], [1, 1]),
        ([[None, 1.5], [HALF]], [1, 1, 1]),
        ([[SHORT, LONG], [1.5]], [1, 1, 1]),
        ([[Rejected(422, "no")], [{"a": SHORT}, {"a": LONG}]], [1, 1, 1]),
        ([[{"a": SHORT, "b": 1}], [{"a": SHORT, "b": LONG}], [None]], [2, 1]),
    ],
)
def test_rows_of_calls_that_differ_keep_their_forms(
    calls: list[list[Any]], counts: list[int], raw: Sequence[Wanted]
) -> None:
    """Where another client's rows end up in another call."""
    rows = [row for call in calls for row in call]
    ends = np.cumsum(counts)

    dealt = split_results(join_chunks([encode(call, expected=len(call)) for call in calls]), counts, raw)

    alone = [encode(rows[end - count : end], expected=count) for count, end in zip(counts, ends, strict=True)]
    assert any(form is not None for form in dealt.forms)
    assert dealt.forms == [split_results(one, [len(one.rows)]).forms[0] for one in alone]


@pytest.mark.parametrize("results", [[1.0], np.array(["a"]), np.array([1j]), np.zeros(()), np.array([None])])
def test_other_results_are_no_array(results: Any) -> None:
    assert as_array(results, expected=1) is None


def test_an_array_of_too_few_rows_is_wrong() -> None:
    with pytest.raises(WrongResult, match=r"^the handler returned 2 results for 3 rows$"):
        as_array(np.zeros(2), expected=3)
