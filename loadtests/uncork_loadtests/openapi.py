"""What the OpenAPI document of a server says about its APIs."""

from collections.abc import Mapping
from typing import Any

# Models of other protocols, besides the routes of the APIs themselves.
_OF_MODELS = ("/v1/models/", "/v2/")

Document = Mapping[str, Any]


def routes_in(document: Document) -> list[str]:
    """Return the paths of a document that take a POST, without those that have parameters."""
    return [path for path in _posts(document) if "{" not in path and not path.startswith(_OF_MODELS)]


def described_path(document: Document, path: str) -> str:
    """Return the path under which a document describes an API of a gateway at ``/SERVICE/API``.

    Other paths stay as they are.
    """
    posts = _posts(document)
    if path in posts:
        return path
    service, _, api = path.strip("/").partition("/")
    # A gateway with one service leaves out its name.
    for operation in (f"{service}.{api}", api):
        for known, post in posts.items():
            if post.get("operationId") == operation:
                return known
    return path


def _posts(document: Document) -> dict[str, dict[str, Any]]:
    """Return the POST operations by path."""
    paths = document.get("paths")
    items = paths.items() if isinstance(paths, dict) else ()
    return {
        path: item["post"]
        for path, item in items
        if isinstance(item, dict) and isinstance(item.get("post"), dict)
    }
