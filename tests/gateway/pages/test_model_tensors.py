"""Outputs learned from answers."""

from __future__ import annotations

from typing import Any

import pytest

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.pages.models.tensors import Outputs, inputs_of
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.forms import TensorForm
from uncork_workers.wire.schema import ApiDescription

NUMBER = TensorSpec("output-0", "INT64", ())


@pytest.mark.parametrize(
    "reply",
    [
        HandlerResult(422, b"1"),
        HandlerResult(200, b"1", content_type="text/plain"),
        HandlerResult(200, b""),
        HandlerResult(200, b"1,"),
        HandlerResult(200, b"\xff"),
        HandlerResult(200, b"[" * 2000),
        HandlerResult(200, b"[" * 1_000_000 + b"]" * 1_000_000),
        HandlerResult(200, b'"%b"' % (b"x" * 2**20)),
    ],
)
def test_an_answer_without_results_that_can_be_read_teaches_nothing(reply: HandlerResult) -> None:
    """Refusals, complete bodies, malformed JSON and large bodies are skipped."""
    outputs = Outputs()
    outputs.saw_results([reply])

    assert outputs.known() == ()
    outputs.saw_results([HandlerResult(200, b"1")])
    assert outputs.known() == (NUMBER,)


def test_the_first_result_of_a_batch_is_enough() -> None:
    """V2 answers report their own tensors."""
    outputs = Outputs()
    outputs.saw_results([HandlerResult(500, b"x"), HandlerResult(200, b"1,2"), HandlerResult(200, b'"text"')])
    outputs.saw_results([HandlerResult(200, b"1.5")])

    assert outputs.known() == (NUMBER,)


def test_raw_rows_are_known_without_being_read() -> None:
    outputs = Outputs()
    outputs.saw_results([HandlerResult(200, bytes(2**21), TensorForm("FP16", (2**19, 2)))])

    assert outputs.known() == (TensorSpec("output-0", "FP16", (2**19, 2)),)


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
