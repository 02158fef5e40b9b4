"""The adapter for files."""

from collections.abc import Sequence
from typing import Any

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.definition.adapters.requests import Request, RequestAdapter
from uncork_workers.definition.adapters.uploads import (
    UploadedFile,
    media_type_of,
    read_parts,
    read_upload,
)
from uncork_workers.plural import plural
from uncork_workers.wire.schema import MULTIPART
from uncork_workers.wire.values import MAX_BATCH_BYTES, DefinitionError, is_count

_CONTENT = {"type": "string", "contentMediaType": "application/octet-stream"}


class File(RequestAdapter):
    """Accepts files; the handler gets a list of :class:`UploadedFile`.

    A file is the whole body, of any content type, or the only part of a ``multipart/form-data`` body. With
    ``parts``, a request must be a ``multipart/form-data`` body with exactly these parts, and the handler gets
    a list of dicts from part name to :class:`UploadedFile`.

    Args:
        parts: names of the parts, for example ``("image", "mask")``.
        max_bytes: the largest file; a larger one gets 400. By default only the gateway's limit on request
            bodies applies.

    Raises:
        DefinitionError: if an argument is invalid.
    """

    def __init__(self, *, parts: Sequence[str] = (), max_bytes: int | None = None) -> None:
        if isinstance(parts, str) or not all(isinstance(name, str) and name for name in parts):
            raise DefinitionError(f"File: parts must be a list of names, got {parts!r}")
        if len(set(parts)) != len(parts):
            raise DefinitionError(f"File: parts must be distinct names, got {parts!r}")
        if max_bytes is not None and not is_count(max_bytes, most=MAX_BATCH_BYTES):
            raise DefinitionError(
                f"File: max_bytes must be an integer from 1 to {MAX_BATCH_BYTES}, got {max_bytes!r}"
            )
        self._parts = tuple(parts)
        self._max_bytes = max_bytes
        if parts:
            self.accepts = (MULTIPART,)

    def schema(self) -> dict[str, Any]:
        """Return the schema of a file, or of an object of files."""
        if not self._parts:
            return dict(_CONTENT)
        return {
            "type": "object",
            "properties": {name: dict(_CONTENT) for name in self._parts},
            "required": list(self._parts),
            "additionalProperties": False,
        }

    def handle_batch_request(
        self, requests: Sequence[Request]
    ) -> list[UploadedFile] | list[dict[str, UploadedFile]]:
        """Return the file, or the dict of files, of each request."""
        if self._parts:
            return [self._read_parts(request) for request in requests]
        files = [read_upload(request.body, request.content_type) for request in requests]
        for file in files:
            self._check_size("the file", file)
        return files

    def _read_parts(self, request: Request) -> dict[str, UploadedFile]:
        wanted = ", ".join(map(repr, self._parts))
        if media_type_of(request.content_type)[0] != MULTIPART:
            raise InvalidInput(f"the body must be {MULTIPART} with the parts {wanted}")
        files: dict[str, UploadedFile] = {}
        for name, file, _ in read_parts(request.body, request.content_type):
            if name not in self._parts:
                raise InvalidInput(f"unknown part {name!r}; expected {wanted}")
            if name in files:
                raise InvalidInput(f"duplicate part {name!r}")
            self._check_size(f"the part {name!r}", file)
            files[name] = file
        missing = [name for name in self._parts if name not in files]
        if missing:
            raise InvalidInput(f"missing part {', '.join(map(repr, missing))}; expected {wanted}")
        return files

    def _check_size(self, what: str, file: UploadedFile) -> None:
        if self._max_bytes is not None and len(file.data) > self._max_bytes:
            raise InvalidInput(f"{what} has {plural(len(file.data), 'byte')}; the limit is {self._max_bytes}")
