"""Commands that people can paste to call an api."""

from __future__ import annotations

import shlex

import msgspec

from uncork_workers.wire.schema import JSON, ApiDescription

# Kinds of which a body may have several rows; a body of JSON is one value.
_LISTED = ("ndarray", "dataframe")
# As much as may be copied from a terminal with pleasure.
_MOST_EXAMPLE_CHARACTERS = 300
_MULTIPART, _FILE = "multipart/form-data", "FILE"
# Of a body that may be of any type, or of any type of a kind.
_TYPES = {"*": "application/octet-stream", "image/*": "image/png"}


def curl(api: ApiDescription, base_url: str, *, wants_key: bool) -> str:
    """Return a command that sends the example of an api, or a ``FILE`` if it has no short one.

    Where clients need an API key, ``KEY`` stands for it.
    """
    words = ["curl", *(["--no-buffer"] if api.streams else []), base_url + api.route]
    content_type, body = _content(api)
    if content_type:
        words += ["-H", f"content-type: {content_type}"]
    if wants_key:
        words += ["-H", "x-api-key: KEY"]
    return shlex.join([*words, *body])


def has_short_example(api: ApiDescription) -> bool:
    """Whether the command for an api is whole."""
    return 0 < len(api.example) <= _MOST_EXAMPLE_CHARACTERS


def _content(api: ApiDescription) -> tuple[str, list[str]]:
    """The content type of a body, if it must be given, and the words that give the body."""
    if has_short_example(api):
        return api.example_type, ["-d", _example(api)]
    if api.input["kind"] != "raw":
        return JSON, ["-d", f"@{_FILE}"]
    accepted = api.input["accepts"][0]
    if accepted == _MULTIPART:
        parts = list(api.schema.get("properties", ())) or ["file"]
        return "", [word for part in parts for word in ("-F", f"{part}=@{_FILE}")]
    return _TYPES.get(accepted, accepted), ["--data-binary", f"@{_FILE}"]


def _example(api: ApiDescription) -> str:
    if api.example_type.startswith("text/"):
        return str(msgspec.json.decode(api.example))
    text = api.example.decode()
    return f"[{text}]" if api.input["kind"] in _LISTED else text
