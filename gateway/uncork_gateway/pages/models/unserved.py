"""Explains why a path of a model protocol is not served."""

from __future__ import annotations

import re

from uncork_gateway.pages.models.metadata import ModelVersions, UnknownModel, find_model

_OF_A_MODEL = re.compile(
    r"/v[12]/models/(?P<model>[^/:]+)(/versions/(?P<version>[^/:]+))?(:(?P<verb>\w+)|/(?P<part>\w+))?"
)
_EXAMPLES = "takes examples with named features, which Uncork does not support"
_VERBS = {
    "classify": _EXAMPLES,
    "regress": _EXAMPLES,
    "explain": "needs an explainer, which Uncork does not have",
}
_PARTS = {
    "generate": "is for models that generate text, which Uncork does not support",
    "generate_stream": "is for models that generate text, which Uncork does not support",
}
# Of a server or a model.
_EXTENSIONS = (
    (
        re.compile(r"/v2/(system|cuda)sharedmemory/.*"),
        "shared memory is not supported; send tensors in the body, as JSON or binary data",
    ),
    (
        re.compile(r"/v2(/models/[^/]+)?/trace/setting"),
        "trace settings cannot be read or changed over HTTP; start the server with --traces",
    ),
    (
        re.compile(r"/v2/logging"),
        "log settings cannot be read or changed over HTTP; start the server with --log-level",
    ),
)


def why_unserved(path: str, models: ModelVersions, *, root: str = "") -> str | None:
    """Return why a path below ``root`` has no route; None if it is not a path of a model protocol."""
    for pattern, reason in _EXTENSIONS:
        if pattern.fullmatch(path):
            return reason
    found = _OF_A_MODEL.fullmatch(path)
    if found is None:
        return None
    try:
        find_model(found["model"], models, version=found["version"] or "")
    except UnknownModel as error:
        return str(error)
    wanted = found["verb"] or found["part"] or ""
    if (why := _VERBS.get(wanted)) is not None:
        return f":{wanted} {why}; POST to {root}{path.removesuffix(wanted)}predict"
    if (why := _PARTS.get(wanted)) is not None:
        return f"/{wanted} {why}; POST to {root}{path.removesuffix(wanted)}infer"
    return None
