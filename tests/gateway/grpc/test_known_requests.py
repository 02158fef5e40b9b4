"""Requests that are known without parsing them are read as if they were parsed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.grpc.bodies import Named, infer_request, predict_request
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.infer_method import InferMethod
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import CallFailed, Code

INFER, PREDICT = message("inference.ModelInferRequest"), message("tensorflow.serving.PredictRequest")


class Route:
    """The route of a model whose rows are arrays, or JSON."""

    streams = has_siblings = False

    def __init__(self, dialect: type[V2Grpc] | type[Predict], **codec: Any) -> None:
        spec, cost = codec.get("spec", {"kind": "ndarray", "shape": [None]}), codec.get("cost")
        self.dialect = dialect(make_codec(spec, cost), model="m", inputs=ANY_INPUTS, saw=lambda outputs: None)


class Stage:
    """A method whose models are ``m`` and ``n``, without versions but "1"."""

    def __init__(self, dialect: type[V2Grpc] | type[Predict] = V2Grpc, **codec: Any) -> None:
        self.parsed = 0
        self.models = {name: Route(dialect, **codec) for name in "mn"}
        self.method: InferMethod = InferMethod(INFER if dialect is V2Grpc else PREDICT, self._route)

    def _route(self, request: Any) -> Any:
        self.parsed += 1
        if request.DESCRIPTOR is PREDICT.DESCRIPTOR:
            return self.models["m"]
        if request.model_name not in self.models or request.model_version not in ("", "1"):
            raise CallFailed("no such model", Code.NOT_FOUND)
        return self.models[request.model_name]

    def read(self, message: bytes) -> tuple[Any, str, Marshalled] | str:
        """The route, the id and the rows of a request, or its error."""
        try:
            asked = self.method.ask(message)
            return asked.route, asked.id, self.method.read(asked)
        except GatewayError as error:
            return str(error)

    def is_known(self, message: bytes) -> bool:
        """Whether a message is read without parsing it."""
        before = self.parsed
        self.read(message)
        return self.parsed == before


def _like(stage: Stage) -> Stage:
    """Return a stage with the same models that knows no requests."""
    fresh = Stage()
    fresh.models = stage.models
    return fresh


def floats(*values: float, rows: int = 1) -> Named:
    """A tensor of FP32 with equal rows."""
    return Named("x", "FP32", np.array([values] * rows, "<f4"))


def written(*values: float, rows: int = 1, typed: bool = False, **fields: Any) -> bytes:
    return bytes(infer_request(floats(*values, rows=rows), typed=typed, **fields).SerializeToString())


requests = st.builds(
    written,
    st.floats(width=32),
    st.floats(width=32),
    rows=st.integers(1, 3),
    typed=st.booleans(),
    model_name=st.sampled_from(["m", "n", "o"]),
    model_version=st.sampled_from(["", "1", "2"]),
    id=st.sampled_from(["", "a", "b"]),
)


@given(sent=st.lists(requests, max_size=30), cut=st.booleans())
def test_a_known_request_is_read_as_if_it_were_new(sent: list[bytes], cut: bool) -> None:
    """Also what is the beginning of another one."""
    stage = Stage()
    for each in [*sent, *sent, *sent]:
        one = each[:-1] if cut else each
        assert stage.read(one) == _like(stage).read(one)


def test_all_of_a_message_counts_against_the_queue() -> None:
    """The response may need more than the values, and what is kept for it takes memory as they do."""
    long = "x" * 10_000
    outputs = [{"name": long}]
    for sent in (written(1, id=long), written(1, outputs=outputs), written(1, parameters={long: {}})):
        found = Stage().read(sent)
        assert not isinstance(found, str)
        assert len(long) <= found[2].size_bytes <= len(sent)


@pytest.mark.parametrize("typed", [False, True])
def test_requests_are_known_when_they_come_for_the_third_time(typed: bool) -> None:
    stage, predicting = Stage(), Stage(Predict)
    same = [written(value, 1, typed=typed) for value in range(4)]
    assert [stage.is_known(each) for each in same] == [False, False, True, True]
    predict = [predict_request(floats(value), typed=typed).SerializeToString() for value in range(4)]
    assert [predicting.is_known(each) for each in predict] == [False, False, True, True]

    assert not stage.is_known(written(1, 2, 3, typed=typed))
    assert not stage.is_known(written(1, 2, typed=typed, id="own"))
    assert not stage.is_known(written(1, 2, typed=typed, model_name="n"))
    assert stage.is_known(written(1, 2, typed=typed))


def test_two_clients_of_two_models_are_known_at_the_same_time() -> None:
    stage = Stage()
    for _ in range(3):
        for name in "mn":
            stage.read(written(1, model_name=name))
    assert stage.is_known(written(1, model_name="m"))
    assert stage.is_known(written(1, model_name="n"))


def test_requests_that_are_converted_are_not_known() -> None:
    """The cost of a row is computed from its JSON."""
    stage = Stage(cost=1.0)
    assert not any(stage.is_known(written(value)) for value in range(5))


def test_what_equals_the_values_by_chance_is_not_taken_for_them() -> None:
    """A message may end with its version, or with a field that the method does not have."""
    stage = Stage()
    tensor = infer_request(Named("x", "UINT8", np.array([[ord("1")]], "u1"))).SerializeToString()
    for field in (b"\x12", b"\xa2\x06"):
        same = tensor + field + b"\x011"
        for _ in range(5):
            assert stage.read(same) == _like(stage).read(same)
            assert not stage.is_known(same)
    assert stage.read(tensor + b"\x12\x012") == "no such model"


def test_the_heads_of_too_many_forms_are_forgotten() -> None:
    stage = Stage()
    for size in range(1, 600):
        for _ in range(3):
            stage.read(written(*range(size)))
    assert not stage.is_known(written(1))
    assert stage.is_known(written(*range(599)))


def test_long_heads_are_not_kept() -> None:
    stage = Stage()
    assert not any(stage.is_known(written(value, id="x" * 1024)) for value in range(5))


def test_after_a_change_of_the_models_nothing_is_known() -> None:
    stage = Stage()
    for _ in range(3):
        stage.read(written(1))
    stage.models["m"] = Route(V2Grpc, spec={"kind": "ndarray", "shape": [2]})
    stage.method.forget()

    assert "a row must have shape (2,)" in str(stage.read(written(1)))
