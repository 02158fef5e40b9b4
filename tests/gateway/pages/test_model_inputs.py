"""The input tensors in metadata: of a worker's description if it names them, else of the schema."""

from typing import Any

import pytest

from uncork_gateway.pages.models.tensors import inputs_of
from uncork_workers.wire.schema import ApiDescription


@pytest.mark.parametrize(
    ("described", "inputs"),
    [
        ({"kind": "ndarray", "dtype": "float32", "shape": [4]}, [("input-0", "FP32", (4,))]),
        (
            {"kind": "ndarray", "dtype": "int8", "shape": [None, 2], "name": "x"},
            [("x", "INT8", (-1, 2))],
        ),
        (
            {
                "kind": "json",
                "tensors": {
                    "ids": {"dtype": "int64", "shape": [None]},
                    "text": {"dtype": "str", "shape": []},
                },
            },
            [("ids", "INT64", (-1,)), ("text", "BYTES", ())],
        ),
    ],
)
def test_inputs_have_the_names_and_types_of_the_model(
    described: dict[str, Any], inputs: list[tuple[str, str, tuple[int, ...]]]
) -> None:
    api = ApiDescription(name="predict", route="/predict", input=described)

    assert [tuple(spec) for spec in inputs_of(api)] == inputs
