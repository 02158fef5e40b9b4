"""KServe V1 and TensorFlow Serving REST to our APIs: rows and columns in, results out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.dispatcher.batches import costs_of
from tests.gateway.proxy_stage import error
from tests.gateway.stage import Stage
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import BadRequest

CODEC = make_codec({"kind": "json"}, None)
KSERVE, TF = Rest(CODEC, kserve=True), Rest(CODEC, kserve=False)
EXPLAINS = Rest(CODEC, results="explanations", kserve=True)


def said(dialect: Rest, body: bytes, *results: bytes) -> Any:
    """Return the answer for a handler's results."""
    asked = dialect.read(body, ())
    result = HandlerResult(200, b",".join(results or [asked.body]))
    head, body = dialect.write(result, asked, batch_id="g-1")
    assert head == b"content-type: application/json\r\n"
    return json.loads(body)


@pytest.mark.parametrize(
    ("dialect", "body", "told"),
    [
        (KSERVE, b'{"instances": [1, "a"]}', {"message": "", "batchId": "g-1", "predictions": [1, "a"]}),
        (KSERVE, b'{"inputs": [[1], 2]}', {"outputs": [[1], 2]}),
        (KSERVE, b'{"inputs": {"a": [1, 2]}}', {"outputs": {"a": [1, 2]}}),
        (KSERVE, b'{"inputs": [{"a": 1}, {"a": 2}]}', {"outputs": {"a": [1, 2]}}),
        (TF, b'{"instances": [1], "signature_name": ""}', {"predictions": [1]}),
        (TF, b'{"inputs": [1], "signature_name": null}', {"outputs": [1]}),
        (EXPLAINS, b'{"instances": [1]}', {"message": "", "batchId": "g-1", "explanations": [1]}),
        (TF, b'{"instances": [1, 2], "signature_name": "serving_default"}', {"predictions": [1, 2]}),
        (TF, b'{"inputs": [1, 2]}', {"outputs": [1, 2]}),
        (TF, b'{"inputs": {"a": [1, 2], "b": [3, 4]}}', {"outputs": {"a": [1, 2], "b": [3, 4]}}),
        (TF, b'{"instances": [{"a": 1}]}', {"predictions": [{"a": 1}]}),
    ],
)
def test_an_answer_has_the_form_of_its_request(dialect: Rest, body: bytes, told: Any) -> None:
    """KServe's answers carry the batch id; inputs are answered with outputs."""
    assert said(dialect, body) == told


@pytest.mark.parametrize("dialect", [KSERVE, TF])
@pytest.mark.parametrize("rows", [b'"instances": [1]', b'"inputs": [1]', b'"inputs": {"a": [1]}'])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (b'"x"', "unknown signature 'x'.* has only 'serving_default': send "),
        (b'"Serving_default"', "unknown signature 'S"),
        (b"3", "signature_name must be a text: .*int"),
        (b"[Infinity]", "signature_name must be a text: .*array"),
        (b"NaN", "signature_name is not valid JSON: "),
        (rb'"\ud800"', "signature_name is not valid JSON: "),
        (b"1" * 5000, "signature_name must be a text: "),
        (b"1e999", "signature_name must be a text: "),
    ],
)
def test_a_signature_that_does_not_exist_is_an_error(
    dialect: Rest, rows: bytes, name: bytes, said: str
) -> None:
    with pytest.raises(BadRequest, match=f"^{said}"):
        dialect.read(b'{"signature_name": %b, %b}' % (name, rows), ())


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([b'{"p": 1}', b'{"p": 2}'], {"p": [1, 2]}),
        ([b"1", b"2"], [1, 2]),
        ([b'{"p": 1}', b'{"q": 2}'], [{"p": 1}, {"q": 2}]),
    ],
)
def test_columns_are_answered_with_columns_if_they_can_be(results: list[bytes], told: Any) -> None:
    """Other results are a list."""
    assert said(TF, b'{"inputs": {"a": [1, 2]}}', *results) == {"outputs": told}


@pytest.mark.parametrize(
    "body",
    [
        b"[1]",
        b'{"instances": []}',
    ],
)
def test_what_is_malformed_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        KSERVE.read(body, ())


# End to end


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("dialect", [KSERVE, TF, EXPLAINS])
async def test_an_error_is_said_with_its_true_status(dialect: Rest, status: int) -> None:
    """Errors have their status and an object with the member ``error``."""
    stage = Stage(dialect=dialect)
    stage.runner.reply = lambda body: HandlerResult(status, b'no "rows" of that')

    assert error(await stage.reply(b'{"instances": [1]}'), status) == 'no "rows" of that'
    assert error(await stage.reply(b"{"), 400).startswith("the body is not valid JSON")
    assert error(await stage.reply(b" " * 101), 413) == "the body exceeds the limit of 100 bytes"
    assert stage.counted(status)


@pytest.mark.parametrize("kind", [b"text/plain", b"application/x-www-form-urlencoded", b""])
async def test_the_body_is_json_whatever_it_is_said_to_be(kind: bytes) -> None:
    """curl sends a form's content type by default, and KServe accepts it."""
    reply = await Stage(dialect=KSERVE).reply(
        b'{"instances": [1]}', headers=[(b"content-type", kind)] if kind else []
    )

    assert reply.status == 200


async def test_rows_are_those_of_the_input() -> None:
    """Lengths along open axes are the batch key, as on the native route."""
    codec = make_codec({"kind": "ndarray", "shape": [None]}, None)
    stage = Stage(dialect=Rest(codec, kserve=True))
    bodies = [b'{"instances": [[1], [2]]}', b'{"instances": [[1, 2]]}', b'{"instances": [[3]]}']
    replies = await asyncio.gather(*(stage.reply(body) for body in bodies))

    assert stage.runner.batches == [[b"[1],[2]", b"[3]"], [b"[1, 2]"]]
    assert [json.loads(reply.body)["predictions"] for reply in replies] == [[[1], [2]], [[1, 2]], [[3]]]
    assert error(await stage.reply(b'{"instances": [1]}'), 400)


async def test_rows_are_weighed() -> None:
    """Rows without a computable cost are rejected."""
    stage = Stage(dialect=Rest(make_codec({"kind": "json"}, "n"), kserve=True))
    await stage.reply(b'{"instances": [{"n": 2}, {"n": 3}]}')

    assert costs_of(stage.runner.jobs[0]) == [5]
    bad = error(await stage.reply(b'{"instances": [{"n": 2}, {}]}'), 400)
    assert bad == "the field 'n' is missing"
