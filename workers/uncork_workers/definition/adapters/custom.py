"""Whole requests, and the class from which services make adapters of their own."""

from __future__ import annotations

import mimetypes
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeGuard
from urllib.parse import parse_qsl, urlencode

import msgspec

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, Sample
from uncork_workers.definition.adapters.uploads import (
    MOST_PARTS,
    MULTIPART,
    decode_text,
    media_type_of,
    read_parts,
)
from uncork_workers.plural import plural
from uncork_workers.wire.messages import Meta
from uncork_workers.wire.schema import JSON, DefinitionError

_FORM = "application/x-www-form-urlencoded"
_UTF8 = "utf-8"

_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as the client sent it.

    Attributes:
        body: as it came.
        content_type: media type with parameters, as the client says it.
        query: parameters of the query; of several with one name the last.
        headers: fields with their names in lower case; several with one name have commas between them.
    """

    body: bytes
    content_type: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def payload(self) -> Any:
        """The body by its content type.

        JSON is parsed, ``text/*`` is a str in the charset that is named, else UTF-8. A form is a dict of str
        by name, one in multipart/form-data of :class:`UploadedFile` for parts that are files; of several with
        one name it has the last. Anything else is bytes.

        Raises:
            InvalidInput: if the body is not of its content type.
        """
        media_type, parameters = media_type_of(self.content_type)
        if media_type == JSON or media_type.endswith("+json"):
            return _parse_json(self.body)
        if media_type.startswith("text/"):
            return decode_text(self.body, parameters.get("charset", _UTF8))
        if media_type == _FORM:
            return _parse_form(self.body)
        if media_type == MULTIPART:
            return {
                part.name: part.file if part.is_file else _text_of(part.file.data, part.file.content_type)
                for part in read_parts(self.body, self.content_type)
            }
        return self.body


class RequestAdapter(Adapter):
    """Base of adapters that make rows of whole requests: of bodies in any form, queries and headers.

    A request is one row, and shares batches with all others of its api. Subclasses say what rows are::

        class Points(RequestAdapter):
            accepts = ("application/x-points",)

            def handle_batch_request(self, requests):
                if any(len(request.body) != 8 for request in requests):
                    raise InvalidInput("a point is 8 bytes")
                return np.frombuffer(b"".join(request.body for request in requests), "<f4").reshape(-1, 2)

    What is common to all requests is done once there, not once for each: that is what batches are for.

    Attributes:
        accepts: media types of bodies, ``image/*`` for all of a kind, ``*`` for all, which is the default.
            The first is assumed where a client says none. Others get 415.
        answers_each: whether each result of the handler is an answer of its own, as with :class:`Requests`.
    """

    kind = "raw"
    accepts: Sequence[str] = ("application/octet-stream", "*")

    @abstractmethod
    def handle_batch_request(self, requests: Sequence[Request]) -> Any:
        """Make one row of each request, in order: a list, an array, anything with a length and slices.

        One request is refused by an :class:`InvalidInput` in the place of its row. If it is raised instead,
        this is called again with each request alone, to find those that are to blame; so it is after a row
        was refused, and after a handler failed. The text of the error is told to the client, with 400.

        Raises:
            InvalidInput: if at least one of the requests is not valid.
        """

    def describe(self) -> dict[str, Any]:
        """Kind and media types."""
        if isinstance(self.accepts, str) or not self.accepts:
            raise DefinitionError(
                f"{type(self).__name__}: accepts must be a list of media types, got {self.accepts!r}"
            )
        return {"kind": self.kind, "accepts": list(self.accepts)}

    def sample(self, example: object) -> Sample:
        """The request of a client that sends a file or some bytes, or a :class:`Request` itself.

        The media type of a file is told by the end of its name. Where that is not accepted, and for bytes, it
        is the one that is assumed where a client says none.
        """
        match example:
            case Request():
                meta = Meta(example.content_type, urlencode(example.query), list(example.headers.items()))
                return Sample(example.body, meta)
            case Path():
                guessed = mimetypes.guess_type(example)[0]
                return Sample(_content(example), Meta(guessed if self._takes(guessed) else self.accepts[0]))
            case bytes():
                return Sample(example, Meta(self.accepts[0]))
        raise InvalidInput(f"it must be bytes, a pathlib.Path or a Request, got {example!r}")

    def _takes(self, media_type: str | None) -> TypeGuard[str]:
        if media_type is None:
            return False
        kind = media_type.partition("/")[0]
        return any(one in ("*", media_type, f"{kind}/*") for one in self.accepts)

    def merge(self, bodies: Sequence[bytes]) -> NoReturn:
        """Rows of JSON are no requests."""
        raise InvalidInput("this api takes no rows of JSON, only requests at its own route")

    def merge_raw(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> Any:
        """What :meth:`handle_batch_request` makes of the requests."""
        rows = self.handle_batch_request(list(map(_request, bodies, metas)))
        if len(rows) != len(bodies):
            # The adapter is wrong, not a request.
            raise RuntimeError(
                f"handle_batch_request returned {plural(len(rows), 'row')} "
                f"for {plural(len(bodies), 'request')}"
            )
        if isinstance(rows, list | tuple):
            for row in rows:
                if isinstance(row, InvalidInput):
                    raise row
        return rows


def _request(body: bytes, meta: Meta) -> Request:
    headers: dict[str, str] = {}
    for name, value in meta.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(
        body=body,
        content_type=meta.content_type,
        query=dict(parse_qsl(meta.query, keep_blank_values=True)),
        headers=headers,
    )


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"it cannot be read: {error}") from error


def _parse_json(body: bytes) -> Any:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not valid JSON: {error}") from error


def _parse_form(body: bytes) -> dict[str, str]:
    text = decode_text(body, _UTF8)
    try:
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARTS))
    except ValueError as error:
        raise InvalidInput(f"the body is not a valid form: {error}") from error


def _text_of(data: bytes, content_type: str) -> str:
    return decode_text(data, media_type_of(content_type)[1].get("charset", _UTF8))
