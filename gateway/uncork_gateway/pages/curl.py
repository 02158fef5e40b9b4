"""Shell commands that call an API."""

import shlex

import msgspec

from uncork_gateway.codecs import make_codec
from uncork_gateway.pages.openapi.bodies import form_fields
from uncork_workers.wire.schema import JSON, MULTIPART, ApiDescription

# Longer examples are impractical to copy from a terminal.
_MOST_EXAMPLE_CHARACTERS = 300
_FILE = "FILE"
# Concrete media types for patterns.
_TYPES = {"*": "application/octet-stream", "image/*": "image/png"}


def curl(api: ApiDescription, base_url: str, *, wants_key: bool) -> str:
    """Return a curl command that sends an API's example, or ``FILE`` if it has no short example.

    With ``wants_key``, the command also sends the API key ``KEY``.
    """
    words = ["curl", *(["--no-buffer"] if api.streams else []), base_url + api.route]
    content_type, body = _content(api)
    if content_type:
        words += ["-H", f"content-type: {content_type}"]
    if wants_key:
        words += ["-H", "x-api-key: KEY"]
    return shlex.join([*words, *body])


def has_short_example(api: ApiDescription) -> bool:
    """Return True if an API's command needs no file."""
    return 0 < len(api.example) <= _MOST_EXAMPLE_CHARACTERS


def _content(api: ApiDescription) -> tuple[str, list[str]]:
    """Return the content type, if the command must set it, and the curl arguments for the body."""
    if has_short_example(api):
        return api.example_type, ["-d", _example(api)]
    if api.input["kind"] != "raw":
        return JSON, ["-d", f"@{_FILE}"]
    accepted = api.input["accepts"][0]
    if accepted == MULTIPART:
        return "", [word for name in form_fields(api.schema) for word in ("-F", f"{name}=@{_FILE}")]
    return _TYPES.get(accepted, accepted), ["--data-binary", f"@{_FILE}"]


def _example(api: ApiDescription) -> str:
    if api.example_type.startswith("text/"):
        return str(msgspec.json.decode(api.example))
    text = api.example.decode()
    return f"[{text}]" if make_codec(api.input).one_or_many else text
