"""APIs as models of other protocols: one path for all models, with an example for each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.pages.models.inputs import INPUT, inputs_of
from uncork_gateway.pages.models.metadata import Model, metadata_of
from uncork_gateway.pages.openapi.bodies import Schema, example_of
from uncork_gateway.pages.openapi.replies import REPLY_HEADERS
from uncork_workers.wire.schema import JSON, ApiDescription

_V1, _V2 = "KServe V1 and TensorFlow Serving", "Open Inference Protocol V2"
TAGS = [
    {"name": _V1, "description": "The same APIs, for clients of these protocols"},
    {"name": _V2, "description": "The same APIs, for clients of this protocol"},
]
_ERROR: Schema = {
    "description": "An error, with the same status as at the API's own route.",
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
_DATATYPES: Mapping[type, str] = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES"}


def paths_of_models(models: Mapping[str, Model]) -> Schema:
    """Describe the paths of models; empty if only workers can read the bodies of every API."""
    known = {name: model.api for name, model in sorted(models.items()) if model.api.input["kind"] != "raw"}
    if not known:
        return {}
    explained = {
        name: model.explainer for name, model in sorted(models.items()) if name in known and model.explainer
    }
    v1, v2 = "/v1/models/{model}", "/v2/models/{model}"
    return {
        f"{v1}:predict": _post(_V1, "v1.predict", "Predict (KServe V1)", known, _instances),
        **(
            {f"{v1}:explain": _post(_V1, "v1.explain", "Explain (KServe V1)", explained, _instances)}
            if explained
            else {}
        ),
        f"{v1}/versions/{VERSION}:predict": _post(
            _V1, "tfserving.predict", "Predict (TensorFlow Serving)", known, _instances
        ),
        v1: _get(_V1, "v1.model", "Check whether a model is ready", known),
        f"{v2}/infer": _post(_V2, "v2.infer", "Infer", known, _tensors),
        v2: _metadata(known, models),
    }


def _post(
    tag: str,
    name: str,
    summary: str,
    known: Mapping[str, ApiDescription],
    write: Callable[[ApiDescription, Any], Any],
) -> Schema:
    examples = {
        model: {"value": body}
        for model, api in known.items()
        if api.example and (body := write(api, example_of(api))) is not None
    }
    content = {"schema": {"type": "object"}, **({"examples": examples} if examples else {})}
    # Swagger UI preselects the first.
    operation = _operation(tag, name, summary, [*examples, *(one for one in known if one not in examples)])
    operation["requestBody"] = {"required": True, "content": {JSON: content}}
    operation["responses"]["200"]["headers"] = REPLY_HEADERS
    return {"post": operation}


def _get(tag: str, name: str, summary: str, known: Mapping[str, ApiDescription]) -> Schema:
    return {"get": _operation(tag, name, summary, list(known))}


def _metadata(known: Mapping[str, ApiDescription], models: Mapping[str, Model]) -> Schema:
    described = _get(_V2, "v2.model", "Get a model's inputs and outputs", known)
    examples = {name: {"value": metadata_of(models[name])} for name in known}
    described["get"]["responses"]["200"]["content"][JSON]["examples"] = examples
    return described


def _operation(tag: str, name: str, summary: str, names: Sequence[str]) -> Schema:
    model = {"type": "string", "enum": names, "default": names[0]}
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": model}],
        "responses": {
            "200": {"description": "The response.", "content": {JSON: {"schema": {"type": "object"}}}},
            "default": _ERROR,
        },
    }


def _instances(api: ApiDescription, row: Any) -> Schema:
    return {"instances": [row]}


def _tensors(api: ApiDescription, row: Any) -> Schema | None:
    """Write one row as tensors: an array, a value, or the fields of an object; None if that is impossible."""
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
