"""What is learned of the outputs of an api, and from which answers."""

from __future__ import annotations

import pytest

from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.pages.models.outputs import Outputs
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.messages import TensorForm

NUMBER = TensorSpec("output-0", "INT64", ())


@pytest.mark.parametrize(
    "reply",
    [
        RowsReply(422, b"1"),
        RowsReply(200, b"1", content_type="text/plain"),
        RowsReply(200, b""),
        RowsReply(200, b"1,"),
        RowsReply(200, b"\xff"),
        RowsReply(200, b"[" * 2000),
        RowsReply(200, b"[" * 2000 + b"]" * 2000),
        RowsReply(200, b'"%b"' % (b"x" * 2**20)),
    ],
)
def test_an_answer_without_results_that_can_be_read_teaches_nothing(reply: RowsReply) -> None:
    """Refusals, whole bodies, what is no JSON, and what takes long to read; the next answer counts."""
    outputs = Outputs()
    outputs.saw_results([reply])

    assert outputs.known() == ()
    outputs.saw_results([RowsReply(200, b"1")])
    assert outputs.known() == (NUMBER,)


def test_the_first_result_of_a_batch_is_enough() -> None:
    """Others are read where V2 clients get them."""
    outputs = Outputs()
    outputs.saw_results([RowsReply(500, b"x"), RowsReply(200, b"1,2"), RowsReply(200, b'"text"')])
    outputs.saw_results([RowsReply(200, b"1.5")])

    assert outputs.known() == (NUMBER,)


def test_raw_rows_are_known_without_being_read() -> None:
    """However large they are."""
    outputs = Outputs()
    outputs.saw_results([RowsReply(200, bytes(2**21), TensorForm("FP16", (2**19, 2)))])

    assert outputs.known() == (TensorSpec("output-0", "FP16", (2**19, 2)),)
