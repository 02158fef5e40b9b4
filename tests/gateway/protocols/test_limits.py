"""Limits on the rows and values of a request, in every codec, dialect and protocol."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dialects.values_stage import v2_body
from tests.gateway.grpc.bodies import Named, infer_request, predict_request
from uncork_dispatcher.wording import plural
from uncork_gateway.codecs import make_codec
from uncork_gateway.codecs.groups import RowGroups
from uncork_gateway.codecs.npy import encode_npy
from uncork_gateway.dialects import V2, Rest
from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.protocols.v2 import V2GrpcWire
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.protocols.raw_json import TooMany, without_strings
from uncork_gateway.protocols.rows import RowsWire
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Content, Unmergeable
from uncork_workers.wire.schema import NPY

ROWS, VALUES = 8, 20
LIMITS = Limits(ROWS, VALUES)
Send = Callable[[int], object]


def codec(kind: str, cost: float | str | None = None, **more: Any) -> Any:
    return make_codec({"kind": kind, **more}, cost, LIMITS)


def rest(text: Callable[[int], str], inputs: Inputs = ANY_INPUTS) -> Send:
    return lambda count: Rest(codec("json"), inputs=inputs, kserve=True).read(text(count).encode(), ())


def native(text: Callable[[int], str], kind: str, *media_type: str, **more: Any) -> Send:
    return lambda count: codec(kind, **more).decode(text(count).encode(), *media_type)


def ones(count: int) -> str:
    return ",".join(["1"] * count)


def v2(
    name: str,
    array: Callable[[int], Any],
    datatype: str = "INT32",
    inputs: int = 1,
    cost: float | str | None = None,
) -> Send:
    of: dict[str, Any] = {"model": "m", "inputs": ANY_INPUTS, "saw": lambda outputs: None}
    takes = codec("json", cost)

    def send(count: int) -> object:
        counts = [(count + at) // inputs for at in range(inputs)]
        tensors = [Named(f"x{at}", datatype, array(each)) for at, each in enumerate(counts)]
        match name:
            case "json" | "binary":
                return V2(takes, **of).read(*v2_body(tensors, binary=name == "binary"))
            case "raw" | "typed":
                return V2Grpc(takes, **of).read(infer_request(*tensors, typed=name == "typed"))
        return Predict(takes, **of).read(predict_request(*tensors, typed=name == "predict typed"))

    return send


def rows(count: int) -> Any:
    return np.ones((count, 1), "<i4")


def numbers(count: int) -> Any:
    """Return one row, which has ``count`` values and lists as JSON."""
    return np.ones((1, count - 1), "i1")


def lists(count: int) -> Any:
    """Return one row, which has ``count`` lists as JSON."""
    return np.ones((1, count - 1, 1), "i1")


def csv(count: int) -> bytes:
    """Return rows of five values without quotes."""
    return b"a,b,c,d,e\n" + b"1,2,3,4,5\n" * (count // 5)


def texts(count: int) -> Any:
    return np.array([*[b""] * count, None], object)[:-1].reshape(1, count)


def input_parameters(count: int) -> object:
    """Send a V2 request of ``count`` members, of which six are the protocol's."""
    parameters = {str(k): 1 for k in range(count - 6)}
    one = {"name": "x", "shape": [1], "datatype": "INT32", "data": [1], "parameters": parameters}
    dialect = V2(codec("json"), model="m", inputs=ANY_INPUTS, saw=lambda outputs: None)
    return dialect.read(json.dumps({"inputs": [one]}).encode(), ())


_BYTES: dict[str, Any] = {"datatype": "INT8", "single": False}
OF_ROWS = {
    "instances": rest(lambda n: f'{{"instances":[{ones(n)}]}}'),
    "instances and more": rest(lambda n: f'{{"a":[{ones(99)}],"instances":[{ones(n)}]}}'),
    "lists": rest(lambda n: f'{{"instances":[{",".join(["[1,2,3]"] * n)}]}}'),
    "list around a value": rest(lambda n: f'{{"instances":[[{ones(n)}]]}}', Inputs("values", single=[""])),
    "named inputs": rest(
        lambda n: json.dumps({"instances": [{str(k): [1] for k in range(n)}]}), Inputs("objects")
    ),
    "texts with commas": rest(lambda n: json.dumps({"instances": [',",['] * n})),
    "inputs": rest(lambda n: f'{{"inputs":[{ones(n)}]}}'),
    "columns": rest(lambda n: f'{{"inputs":{{"a":[{ones(n)}]}}}}'),
    "members": rest(
        lambda n: f'{{{",".join(f"{json.dumps(str(k))}:1" for k in range(n - 1))},"instances":[1]}}'
    ),
    "weighed members": lambda n: make_codec({"kind": "json"}, "0", LIMITS).decode(
        json.dumps({str(k): 1 for k in range(n)}).encode()
    ),
    "array": native(lambda n: f"[{ones(n)}]", "ndarray", shape=[]),
    "array of lists": native(
        lambda n: f" [[[1],[2],[3]]{',[[1],[2],[3]]' * (n - 1)}]", "ndarray", shape=[3, 1]
    ),
    "npy": lambda n: codec("ndarray", shape=[1]).decode(encode_npy(b"1" * n, **_BYTES, shape=(n, 1)), NPY),
    "table of columns": native(lambda n: f'{{"a":[{ones(n)}]}}', "dataframe", columns=None),
    "table of columns by row": native(
        lambda n: json.dumps({"a": {str(k): 1 for k in range(n)}}), "dataframe", columns=None
    ),
    "split table": native(
        lambda n: json.dumps({"columns": ["a"], "data": [[1]] * n}), "dataframe", columns=None
    ),
    "records": native(lambda n: json.dumps([{"a": 1, "b": 2}] * n), "dataframe", columns=None),
    "wide record": native(lambda n: json.dumps({str(k): 1 for k in range(n)}), "dataframe", columns=None),
    "wide records": native(lambda n: json.dumps([{str(k): 1 for k in range(n)}]), "dataframe", columns=None),
    "csv": native(lambda n: "a,b\n" + "1,2\n" * n, "dataframe", "text/csv", columns=None),
    "wide csv": native(
        lambda n: f"{','.join(map(str, range(n)))}\n{ones(n)}\n", "dataframe", "text/csv", columns=None
    ),
    **{name: v2(name, rows) for name in ("json", "binary", "raw", "typed", "predict", "predict typed")},
}
OF_VALUES: dict[str, Send] = {
    "split": native(
        lambda n: f'{{"columns":["a"],"data":[{",".join(["[1]"] * (n - 1))}]}}', "dataframe", columns=None
    ),
    "columns": native(
        lambda n: f'{{"a":[{ones(n // 2)}],"b":[{ones(n - n // 2)}]}}', "dataframe", columns=None
    ),
    "open row": native(lambda n: f"[[{ones(n)}]]", "ndarray", shape=[None]),
    "csv with quotes": native(
        lambda n: 'a,b\n"1",2\n' + "1,2\n" * (n // 2 - 2) + "1,2\n" * (n % 2),
        "dataframe",
        "text/csv",
        columns=None,
    ),
    "csv of carriage returns": native(
        lambda n: "a\r1" + "\r" * (n - 1), "dataframe", "text/csv", columns=None
    ),
    "input parameters": input_parameters,
    "binary texts": v2("binary", texts, "BYTES"),
    "raw texts": v2("raw", texts, "BYTES"),
    "typed texts": v2("typed", texts, "BYTES"),
    "typed numbers": v2("typed", lambda n: np.ones((1, n), "<i4")),
    "predict": v2("predict typed", lambda n: np.ones((1, n), "<i4")),
    **{
        f"{name} of two inputs": v2(name, lambda n: np.ones((1, n), "<i4"), inputs=2)
        for name in ("typed", "predict typed")
    },
    **{f"{name} texts of two inputs": v2(name, texts, "BYTES", inputs=2) for name in ("binary", "raw")},
    **{
        f"weighed {name} of {plural(inputs, 'input')}": v2(name, array, "INT8", inputs=inputs, cost="bytes")
        for name, array in (("json", lists), ("binary", numbers), ("raw", numbers), ("predict", numbers))
        for inputs in (1, 2)
    },
    **{
        f"weighed {name} of many axes": v2(name, lambda n: np.ones([1] * n, "i1"), "INT8", cost="bytes")
        for name in ("raw", "binary")
    },
    "weighed npy": lambda n: codec("ndarray", "bytes", shape=[None]).decode(
        encode_npy(b"1" * (n - 1), **_BYTES, shape=(1, n - 1)), NPY
    ),
    "weighed csv": lambda n: codec("dataframe", "a", columns=None).decode(csv(n), "text/csv"),
}


TABLES = {"split", "columns", "csv with quotes", "weighed csv"}


@pytest.mark.parametrize("form", OF_ROWS)
def test_rows_are_counted_before_they_are_built(form: str) -> None:
    OF_ROWS[form](ROWS)
    with pytest.raises(TooMany, match=rf"^a request may have at most {ROWS} rows, got (at least )?\d+; send"):
        OF_ROWS[form](ROWS + 1)


@pytest.mark.parametrize("form", sorted(set(OF_VALUES) - TABLES))
def test_values_are_counted_before_they_are_built(form: str) -> None:
    OF_VALUES[form](VALUES)
    with pytest.raises(
        TooMany,
        match=rf"^a request may have at most {VALUES} values, got \d+; .* or raise --max-request-values$",
    ):
        OF_VALUES[form](VALUES + 1)


@pytest.mark.parametrize("form", sorted(TABLES))
def test_values_of_tables_are_counted(form: str) -> None:
    with pytest.raises(TooMany, match=r"^a request may have at most "):
        OF_VALUES[form](2 * VALUES)


@pytest.mark.parametrize("cost", [None, 2.5])
def test_numbers_of_tensors_are_not_limited(cost: float | None) -> None:
    """They reach the worker as they came, also if all rows have one cost."""
    for name in ("json", "binary", "raw", "predict"):
        asked: Any = v2(name, numbers, "INT8", cost=cost)(10 * VALUES)
        assert asked.cost.total == cost
    v2("json", numbers, "INT8", cost="bytes")(10 * VALUES)
    table = codec("dataframe", cost, columns=None).decode(csv(2 * VALUES), "text/csv")
    assert table.cost.total == (cost and 8 * cost)


def test_values_of_all_groups_count_together() -> None:
    """The lists that are weighed, or else the pieces into which the inputs are cut."""

    def marshal(cost: str | None, groups: int, inputs: int, *inner: int) -> object:
        takes = make_codec({"kind": "json"}, cost, LIMITS, RowGroups(["g"]))
        data = ones(4 * math.prod(inner)).encode()
        tensors = [Tensor(f"x{at}", "INT8", (4, *inner), "flat", data) for at in range(inputs)]
        of_rows = b",".join([b"%d" % (at % groups) for at in range(4)])
        return takes.marshal_columns([Tensor("g", "INT8", (4,), "flat", of_rows), *tensors])

    marshal(None, 2, 4, 9)
    marshal(None, 1, 5)
    marshal("bytes", 2, 1, 3, 1)
    inner: tuple[int, ...]
    for cost, inputs, inner in ((None, 5, (1,)), ("bytes", 1, (4, 1))):
        with pytest.raises(TooMany, match=rf"^a request may have at most {VALUES} values, got 24; "):
            marshal(cost, 2, inputs, *inner)


def test_the_proxy_passes_on_what_it_does_not_take_apart() -> None:
    many = Limits().rows + 1
    body = f'{{"instances":[{ones(many)}]}}'.encode()
    with pytest.raises(Unmergeable, match="rows"):
        RowsWire(add_batch_id=False).parse(Content(body))
    one = Named("x", "INT8", np.ones(many, "i1"))
    with pytest.raises(Unmergeable, match="rows"):
        V2Wire().parse(Content(*v2_body([one], binary=True)))
    with pytest.raises(Unmergeable, match="rows"):
        V2GrpcWire().parse(Content(infer_request(one).SerializeToString()))
    row = f"[NaN,{ones(2**20)}]"
    tensor = f'{{"name":"x","shape":[1,{2**20 + 1}],"datatype":"FP32","data":{row}}}'
    with pytest.raises(Unmergeable, match="with NaN"):
        RowsWire(add_batch_id=False).parse(Content(f'{{"instances":[{row}]}}'.encode()))
    with pytest.raises(Unmergeable, match="with NaN"):
        V2Wire().parse(Content(f'{{"inputs":[{tensor}]}}'.encode()))


@given(value=st.lists(st.text(alphabet='a\\",[{é') | st.integers()))
def test_strings_are_replaced_by_as_many_digits(value: list[str | int]) -> None:
    """Whatever they contain, structure and length stay."""
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only).encode()
        shown = without_strings(text)
        sizes = [len(json.dumps(each, ensure_ascii=ascii_only).encode()) for each in value]
        assert len(shown) == len(text)
        assert [len(part.strip()) for part in shown[1:-1].split(b",") if part] == sizes


def test_escapes_take_no_object_each() -> None:
    text = b'["%b"]' % (rb"\"aa" * 100_000)
    tracemalloc.start()
    shown = without_strings(text)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert shown == b"[%b]" % (b"0" * (len(text) - 2))
    assert peak_bytes < 8 * len(text)


@pytest.mark.parametrize(("body", "rows"), [(b" \n[ [ 1 ] , [2]]", 2), (b"\t[ 1]", 1)])
def test_space_before_lists_is_skipped(body: bytes, rows: int) -> None:
    assert codec("ndarray", shape=[1]).decode(body).rows == rows
