"""APIs as models of other protocols: one path for all models, with an example for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from uncork_gateway.dialects import Dialect
from uncork_gateway.pages.models.metadata import (
    Model,
    ModelSource,
    ModelVersions,
    default_of,
    dialects_of,
    metadata_of,
    status_of,
)
from uncork_gateway.pages.models.tensors import INPUT, Outputs, inputs_of
from uncork_gateway.pages.openapi.bodies import Schema, example_of
from uncork_gateway.pages.openapi.errors import errors_of, key_error, other_errors
from uncork_gateway.pages.openapi.results import REPLY_HEADERS, ExampleResult, example_result, reply_example
from uncork_gateway.settings import ServerSettings
from uncork_gateway.versions import FIRST
from uncork_workers.wire.schema import JSON, ApiDescription

_V1, _V2 = "KServe V1 and TensorFlow Serving", "Open Inference Protocol V2"
TAGS = [
    {"name": _V1, "description": "The same APIs, for clients of these protocols"},
    {"name": _V2, "description": "The same APIs, for clients of this protocol"},
]
_DATATYPES: Mapping[type, str] = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}
_OBJECT: Schema = {"type": "object"}


class _Call(NamedTuple):
    """An API behind a path of a model; ``result`` is an example of its result."""

    api: ApiDescription
    dialect: Dialect
    result: ExampleResult | None


_Texts = tuple[str, str, str]
"""The tag, id and summary of an operation."""
_Write = Callable[[ApiDescription, Any], Schema | None]
"""Writes the body of a request with one row; None if the protocol cannot express it."""


def paths_of_models(models: ModelVersions, settings: ServerSettings) -> Schema:
    """Describe the paths of models; empty if all APIs have bodies that only workers can read."""
    described = {name: default_of(versions) for name, versions in sorted(models.items())}
    known = {name: model for name, model in described.items() if model.api.input["kind"] != "raw"}
    if not known:
        return {}
    outputs = {_key(model, model.api): model.outputs for model in described.values()}
    calls: dict[str, dict[str, _Call]] = {path: {} for path in _POSTS}
    for name, model in known.items():
        for path, call in _calls(model, outputs):
            if path in calls:
                calls[path][name] = call
    posts = {
        path: {"post": _post(*_POSTS[path], by_name, settings)} for path, by_name in calls.items() if by_name
    }
    keys = key_error(next(iter(calls[_INFER].values())).dialect, settings)
    return posts | {
        _MODEL_V1: {"get": _status(known, keys)},
        _MODEL_V2: {"get": _metadata(known, models, keys)},
    }


def _calls(model: Model, outputs: Mapping[tuple[str, str], Outputs]) -> Iterator[tuple[str, _Call]]:
    """Yield each path of a model, with ``{model}`` in place of the name, and the call behind the path."""
    # Dialects report what they write to the outputs; examples are no answers.
    for path, api, dialect in dialects_of(model._replace(outputs=Outputs())):
        head, _, tail = path.partition(f"/models/{model.name}")
        yield f"{head}/models/{{model}}{tail}", _Call(api, dialect, example_result(outputs[_key(model, api)]))


def _key(model: Model, api: ApiDescription) -> tuple[str, str]:
    """Return a key that is unique among the APIs of all services."""
    return model.name.partition(".")[0], api.name


def _post(texts: _Texts, write: _Write, calls: Mapping[str, _Call], settings: ServerSettings) -> Schema:
    bodies = {
        model: body
        for model, call in calls.items()
        if call.api.example and (body := write(call.api, example_of(call.api))) is not None
    }
    replies = {
        model: reply
        for model, body in bodies.items()
        if (reply := reply_example(calls[model].result, body, calls[model].dialect)) is not None
    }
    # Swagger UI preselects the first.
    operation = _operation(*texts, [*bodies, *(one for one in calls if one not in bodies)])
    examples = {model: {"value": body} for model, body in bodies.items()}
    first = next(iter(calls.values()))
    return operation | {
        "requestBody": {"required": True, "content": {JSON: {"schema": _OBJECT, **_given(examples)}}},
        "responses": {
            "200": {"headers": REPLY_HEADERS, **_answer("The results.", replies)},
            **errors_of(first.api.name, first.dialect, settings),
            "default": other_errors(first.dialect),
        },
    }


def _status(known: Mapping[str, Model], keys: Schema) -> Schema:
    names = list(known)
    model = known[names[0]]
    ready = model._replace(source=ModelSource(unready=lambda: ""))
    loading = model._replace(source=ModelSource(unready=lambda: "loading"))
    return _operation(_V1, "v1.model", "Check whether a model is ready", names) | {
        "responses": {
            "200": _answer("The model is ready.", {model.name: {"value": status_of(ready, [ready])}}),
            **keys,
            "503": _answer("The model is not ready.", {model.name: {"value": status_of(loading, [loading])}}),
        }
    }


def _metadata(known: Mapping[str, Model], models: ModelVersions, keys: Schema) -> Schema:
    examples = {
        name: {"value": metadata_of(model, list(models[name].values()))} for name, model in known.items()
    }
    return _operation(_V2, "v2.model", "Get the inputs and outputs of a model", list(known)) | {
        "responses": {"200": _answer("The inputs and outputs.", examples), **keys}
    }


def _operation(tag: str, name: str, summary: str, models: Sequence[str]) -> Schema:
    model = {"type": "string", "enum": models, "default": models[0]}
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": model}],
    }


def _answer(text: str, examples: Schema) -> Schema:
    return {"description": text, "content": {JSON: {"schema": _OBJECT, **_given(examples)}}}


def _given(examples: Schema) -> Schema:
    return {"examples": examples} if examples else {}


def _instances(api: ApiDescription, row: Any) -> Schema:
    return {"instances": [row]}


def _tensors(api: ApiDescription, row: Any) -> Schema | None:
    """Return an example request with one row as tensors; None if tensors cannot express the row."""
    if api.input["kind"] == "ndarray":
        [(name, datatype, _)] = inputs_of(api)
        shape = [1, *_lengths(row)]
        return {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": [row]}]}
    fields = row if isinstance(row, dict) else {INPUT: row}
    # A single tensor is the row itself, not an object with one field.
    if (isinstance(row, dict) and len(row) < 2) or any(
        type(value) not in _DATATYPES for value in fields.values()
    ):
        return None
    return {
        "inputs": [
            {"name": name, "shape": [1], "datatype": _DATATYPES[type(value)], "data": [value]}
            for name, value in fields.items()
        ]
    }


def _lengths(value: Any) -> list[int]:
    return [len(value), *_lengths(value[0])] if isinstance(value, list) else []


_MODEL_V1, _MODEL_V2 = "/v1/models/{model}", "/v2/models/{model}"
_INFER = f"{_MODEL_V2}/infer"
_POSTS: Mapping[str, tuple[_Texts, _Write]] = {
    f"{_MODEL_V1}:predict": ((_V1, "v1.predict", "Predict (KServe V1)"), _instances),
    f"{_MODEL_V1}:explain": ((_V1, "v1.explain", "Explain (KServe V1)"), _instances),
    f"{_MODEL_V1}/versions/{FIRST}:predict": (
        (_V1, "tfserving.predict", "Predict (TensorFlow Serving)"),
        _instances,
    ),
    _INFER: ((_V2, "v2.infer", "Infer"), _tensors),
}
