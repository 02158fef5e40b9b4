"""The Open Inference Protocol V2 to our APIs: tensors in, tensors out."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.dispatcher.batches import rows_of
from tests.gateway.client import Reply, Server, request
from tests.gateway.protocols import v2_bodies
from tests.gateway.protocols.v2_bodies import Written, ints
from tests.gateway.proxy_stage import Caller, error
from tests.gateway.running import turns
from tests.gateway.stage import Stage
from uncork_gateway.codecs import Codec, Marshalled, make_codec
from uncork_gateway.dialects import V2
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.wire import Content
from uncork_workers.wire.forms import ListForm, RowsForm, TensorForm

LENGTH = v2_bodies.HEADER


def dialect(*, shape: list[int | None] | None = None, cost: float | str | None = None) -> V2:
    """Return the dialect of an API that takes JSON, or arrays of a shape."""
    codec: Codec = make_codec(
        {"kind": "json"} if shape is None else {"kind": "ndarray", "shape": shape}, cost
    )
    return V2(
        codec, model="m", inputs=ANY_INPUTS if shape is None else Inputs("values"), saw=lambda outputs: None
    )


def read(speaks: V2, content: Content) -> Marshalled:
    return speaks.read(content.body, speaks.keep(content.headers, b"/"))


def answer(speaks: V2, asked: Marshalled, reply: bytes, form: RowsForm = None) -> tuple[Any, list[Written]]:
    """Return the members and outputs of the answer for a handler's results."""
    head, body = speaks.write(HandlerResult(200, reply, form), asked, batch_id="g-1")
    headers = []
    for line in head.splitlines():
        name, _, value = line.partition(b": ")
        headers.append((name, value))
    return v2_bodies.read(Content(body, tuple(headers)), "outputs")


def outputs(*wanted: tuple[str, bool | None]) -> list[dict[str, Any]]:
    """Return the members of a request that ask for outputs."""
    return [
        {"name": name} if binary is None else {"name": name, "parameters": {"binary_data": binary}}
        for name, binary in wanted
    ]


def doubles(*values: float) -> Written:
    items = [struct.pack("<d", value) for value in values]
    return Written(name="x", datatype="FP64", inner=[], form="binary", items=items)


# In


@pytest.mark.parametrize("form", ["flat", "nested"])
def test_json_is_rows(form: str) -> None:
    """A JSON tensor, flat or nested, has the key of a native request, so both share batches."""
    asked = read(dialect(shape=[2]), v2_bodies.request(ints(1, 2, 3, 4, inner=[2], form=form)))

    assert (asked.rows, asked.key, json.loads(b"[%b]" % asked.body)) == (2, None, [1, 2, 3, 4])
    assert asked.form == ListForm("INT64", (2,))


def test_a_binary_tensor_costs_as_much_as_its_json() -> None:
    asked = read(dialect(shape=[], cost="bytes"), v2_bodies.request(doubles(1.5, 22.25)))

    assert (asked.body, asked.form) == (struct.pack("<2d", 1.5, 22.25), TensorForm("FP64", ()))
    assert (asked.rows, asked.key, asked.cost.total) == (2, None, 8)


def test_no_classes_is_no_classification() -> None:
    """Triton's clients leave the parameter out for 0; others may not."""
    wanted = [{"name": "y", "parameters": {"classification": 0}}]

    assert read(dialect(), v2_bodies.request(ints(1), outputs=wanted)).rows == 1


@pytest.mark.parametrize("parameters", [{"priority": 1}, {"timeout": 5}, {"my_own": "x"}])
def test_parameters_that_do_not_change_the_answer_have_no_effect(parameters: dict[str, Any]) -> None:
    """Requests with and without them share batches."""
    asked = read(dialect(), v2_bodies.request(ints(1), parameters=parameters))

    assert (asked.rows, asked.key) == (1, None)


def test_an_array_takes_one_input() -> None:
    """An array input takes one tensor."""
    with pytest.raises(BadRequest, match="this model takes one input, got 'x', 'y'"):
        read(dialect(shape=[]), v2_bodies.request(ints(1), ints(2, name="y")))


@pytest.mark.parametrize("names", [["\ud800"], ["x", "\ud800"]])
@pytest.mark.parametrize("kind", ["json", "dataframe"])
def test_an_input_name_that_is_no_text_is_refused(kind: str, names: list[str]) -> None:
    """A frame of the batch would have it, and could not be written."""
    codec = make_codec({"kind": kind} | ({"columns": None} if kind == "dataframe" else {}), None)
    speaks = V2(codec, model="m", inputs=Inputs("objects"), saw=lambda outputs: None)
    with pytest.raises(BadRequest, match=r"^the input name '\\ud800' has half of a character$"):
        read(speaks, v2_bodies.request(*[ints(1, name=name) for name in names]))


# Out


@pytest.mark.parametrize(
    ("request_", "raw"),
    [
        ({}, False),
        ({"parameters": {"binary_data_output": True}}, True),
        ({"outputs": outputs(("output-0", True))}, True),
        ({"outputs": outputs(("output-0", False)), "parameters": {"binary_data_output": True}}, False),
        ({"outputs": outputs(("output-0", None)), "parameters": {"binary_data_output": True}}, True),
        ({"outputs": outputs(("other", True))}, True),
        ({"outputs": outputs(("other", True), ("output-0", False))}, True),
    ],
)
def test_the_worker_is_asked_for_raw_rows_only_if_they_are_wanted(
    request_: dict[str, Any], raw: bool
) -> None:
    assert read(dialect(), v2_bodies.request(ints(1), **request_)).raw == ("tensors" if raw else "")


def test_objects_are_a_tensor_for_each_key() -> None:
    """Outputs keep the handler's order; each is binary if the client asked for that."""
    wanted = outputs(("p", True), ("label", None))
    asked = read(dialect(), v2_bodies.request(ints(1, 2), outputs=wanted))
    reply = b'{"label": "a", "p": 0.5, "more": 1},{"label": "b", "p": 1, "more": 2}'

    _, (p, label) = answer(dialect(), asked, reply)

    assert (p.name, p.datatype, p.form, p.items) == (
        *("p", "FP64", "binary"),
        [struct.pack("<d", 0.5), struct.pack("<d", 1)],
    )
    assert (label.name, label.datatype, label.form, label.items) == ("label", "BYTES", "flat", ["a", "b"])


@pytest.mark.parametrize("name", [None, "", "7", 'é\u0000"', "😀"])
def test_the_id_is_said_again(name: str | None) -> None:
    """The id is returned verbatim, and only if the request had one."""
    told = {} if name is None else {"id": name}
    asked = read(dialect(), v2_bodies.request(ints(1), **told))

    members, _ = answer(dialect(), asked, b"1")

    assert members == {"model_name": "m", "model_version": "1", **told}


# End to end


class Route(Stage):
    """Return a route with a high limit on bodies."""

    def __init__(self, speaks: V2) -> None:
        super().__init__(dialect=speaks)
        self.route.max_body_bytes = 10_000
        self.server = Server({b"/": self.route})

    async def ask(self, *contents: Content) -> list[Reply]:
        """Send requests at the same time and return their replies."""
        callers = [Caller(self.server) for _ in contents]
        for caller, content in zip(callers, contents, strict=True):
            caller.send(request(content.body, headers=content.headers))
        return [await caller.reply() for caller in callers]


async def test_requests_share_a_batch_and_get_their_own() -> None:
    stage = Route(dialect())
    flat = v2_bodies.request(ints(1, 2, 3, 4, inner=[2]), id="flat")
    nested = v2_bodies.request(ints(5, 6, inner=[2], form="nested"))
    binary = v2_bodies.request(doubles(1, 2), id="binary")
    answers = {b"1,2,3,4": b"[1,2],[3,4]", b"5,6": b"[5,6]"}
    stage.runner.reply = lambda body: HandlerResult(200, answers.get(body, b"[7],[8]"))
    replies = await stage.ask(flat, binary, nested)

    assert stage.runner.batches == [[b"1,2,3,4", struct.pack("<2d", 1, 2), b"5,6"]]
    assert [rows_of(job) for job in stage.runner.jobs] == [[2, 2, 1]]
    told = [json.loads(reply.body) for reply in replies]
    assert [one.get("id") for one in told] == ["flat", "binary", None]
    assert [(one["outputs"][0]["shape"], one["outputs"][0]["data"]) for one in told] == [
        ([2, 2], [1, 2, 3, 4]),
        ([2, 1], [7, 8]),
        ([1, 2], [5, 6]),
    ]
    assert [reply.headers["x-batch-size"] for reply in replies] == ["5", "5", "5"]
    assert {reply.headers["content-type"] for reply in replies} == {"application/json"}


async def test_a_binary_answer_says_where_its_json_ends() -> None:
    stage = Route(dialect())
    content = v2_bodies.request(ints(1, 2), parameters={"binary_data_output": True})
    [reply] = await stage.ask(content)

    assert reply.headers["content-type"] == "application/octet-stream"
    length = int(reply.headers[LENGTH.decode()])
    [output] = json.loads(reply.body[:length])["outputs"]
    assert output == {
        "name": "output-0",
        "shape": [2],
        "datatype": "INT64",
        "parameters": {"binary_data_size": 16},
    }
    assert reply.body[length:] == struct.pack("<2q", 1, 2)


@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_is_an_object_with_its_true_status(status: int) -> None:
    """An error in the worker, the reader or the writer affects only its own request."""
    stage = Route(dialect())
    stage.runner.reply = lambda body: (
        HandlerResult(200, body) if body == b"1" else HandlerResult(status, b"no")
    )
    bad, good, unread, unsaid = await stage.ask(
        v2_bodies.request(ints(2)),
        v2_bodies.request(ints(1)),
        Content(b"{"),
        v2_bodies.request(ints(1), outputs=outputs(("y", None))),
    )
    await turns()

    assert error(bad, status) == "no"
    assert good.status == 200
    assert error(unread, 400).startswith("the body is not valid JSON")
    assert error(unsaid, 400) == "unknown output 'y'; available outputs: 'output-0'"


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        (None, b""),
        ({}, b""),
        ({"binary_data_output": True}, b""),
        ({"a": 1.50, "b": [None], "binary_data_output": False}, b'{"a":1.5,"b":[null]}'),
    ],
)
def test_parameters_reach_the_handler_as_sent(parameters: Any, sent: bytes) -> None:
    """Except those that the gateway itself obeys."""
    asked = read(dialect(), v2_bodies.request(ints(1), parameters=parameters))
    assert asked.parameters.replace(b" ", b"") == sent
    assert read(dialect(), v2_bodies.request(ints(1))).parameters == b""


def test_parameters_are_not_copied_for_too_many_rows() -> None:
    """Each row has its own in a handler: the copies could take up the memory of a worker."""
    parameters = {"a": "x" * 2**20}

    assert read(dialect(), v2_bodies.request(ints(1, 2), parameters=parameters)).rows == 2
    with pytest.raises(BadRequest, match=r"^the parameters have 1048584 bytes for each of 8 rows, more"):
        read(dialect(), v2_bodies.request(ints(*range(8)), parameters=parameters))
