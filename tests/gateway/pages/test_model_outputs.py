"""Outputs learned from answers."""

from __future__ import annotations

import pytest

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.forms import TensorForm

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
        HandlerResult(200, b"[" * 2000 + b"]" * 2000),
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
