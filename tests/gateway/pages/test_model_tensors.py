"""Outputs learned from answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.pages.models.tensors import Outputs, inputs_of
from uncork_gateway.protocols.tensor_rows import output_tensors
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.forms import ColumnsForm, ListForm, RecordsForm, TensorForm
from uncork_workers.wire.schema import ApiDescription
from uncork_workers.wire.tensors import join_columns

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


def columns(*names: str, value: int) -> HandlerResult:
    form = ColumnsForm(tuple([(name, TensorForm("INT64", ())) for name in names]))
    return HandlerResult(200, join_columns([value.to_bytes(8, "little")] * len(names)), form)


def records(*names: str, value: int) -> HandlerResult:
    form = RecordsForm(tuple([(name, ListForm("INT64", ())) for name in names]))
    return HandlerResult(200, msgspec.json.encode(dict.fromkeys(names, value)), form)


def objects(*names: str, value: int) -> HandlerResult:
    return HandlerResult(200, msgspec.json.encode(dict.fromkeys(names, value)))


@pytest.mark.parametrize("result_of", [objects, records, columns])
def test_names_of_one_client_are_not_learned(result_of: Callable[..., HandlerResult]) -> None:
    """Keys may be a client's data, and metadata is public; a repeated request proves nothing."""
    outputs = Outputs()
    first = result_of("label", "ann@a.example", value=1)
    for _ in range(2):
        outputs.saw(output_tensors(first.body, first.form, rows=1, binary=lambda name: True))
        outputs.saw_results([first])
        assert outputs.known() == ()
    outputs.saw_results([result_of("label", "bob@b.example", value=2)])

    assert outputs.known() == (TensorSpec("label", "INT64", ()),)


def test_names_of_the_author_are_learned_at_once() -> None:
    """Even if there are more than 256."""
    outputs = Outputs()
    outputs.saw_results([objects("ann@a.example", value=1)])
    outputs.saw_warm_up(objects(*map(str, range(300)), value=1))

    assert [one.name for one in outputs.known()] == [*map(str, range(300))]


@pytest.mark.parametrize(("count", "known"), [(256, 256), (257, 0)])
def test_of_very_many_outputs_none_is_learned_from_clients(count: int, known: int) -> None:
    outputs = Outputs()
    for value in (1, 2):
        outputs.saw_results([objects(*map(str, range(count)), value=value)])

    assert len(outputs.known()) == known


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
