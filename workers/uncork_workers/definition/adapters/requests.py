"""Adapters for complete requests: the base class for custom adapters, and ``Requests``."""

from __future__ import annotations

import mimetypes
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, overload
from urllib.parse import parse_qsl, urlencode

import msgspec

from uncork_workers.definition.adapters.base import UNREADABLE, Adapter, InvalidInput, Sample
from uncork_workers.definition.adapters.uploads import (
    MOST_PARTS,
    decode_text,
    media_type_of,
    read_parts,
)
from uncork_workers.plural import plural
from uncork_workers.wire.json_faults import json_fault
from uncork_workers.wire.messages import Meta
from uncork_workers.wire.schema import JSON, MULTIPART
from uncork_workers.wire.values import DefinitionError

_FORM = "application/x-www-form-urlencoded"
_UTF8 = "utf-8"

_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One HTTP request as the client sent it.

    Attributes:
        body: the body.
        content_type: media type with parameters.
        query: query parameters; the last one if a name occurs more than once.
        headers: headers with names in lower case; values of the same name are joined with commas.
    """

    body: bytes
    content_type: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def payload(self) -> Any:
        """The body, decoded by its content type.

        JSON is parsed. ``text/*`` is a ``str``, decoded with its charset parameter or UTF-8. A form is a dict
        from name to ``str``, or to :class:`UploadedFile` for files in ``multipart/form-data``; the last value
        wins if a name occurs more than once. Anything else is ``bytes``.

        Raises:
            InvalidInput: if the body does not match its content type.
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
    """Base class of custom adapters, which make one row of each request: of its body, query and headers.

    All requests of an API can share a batch. A subclass makes their rows::

        class Points(RequestAdapter):
            accepts = ("application/x-points",)

            def handle_batch_request(self, requests):
                if any(len(request.body) != 8 for request in requests):
                    raise InvalidInput("a point is 8 bytes")
                return np.frombuffer(b"".join(request.body for request in requests), "<f4").reshape(-1, 2)

    Work that all requests share is done once per batch there.

    Attributes:
        accepts: accepted media types; ``image/*`` stands for all images, ``*`` for all types (the default).
            A body without a content type counts as the first. Others get 415.
        answers_each: whether each result of the handler is a complete response, as for :class:`Requests`.
    """

    kind = "raw"
    accepts: Sequence[str] = ("application/octet-stream", "*")

    @abstractmethod
    def handle_batch_request(self, requests: Sequence[Request]) -> Any:
        """Make one row of each request, in order.

        To reject a single request, return an :class:`InvalidInput` in place of its row. If the method raises
        ``InvalidInput`` instead, it is called again with each request alone, to find the invalid ones. It is
        also called again after a rejected row or a failed handler. The client gets 400 with the message.

        Args:
            requests: the requests of the batch, or some of them.

        Returns:
            A sequence that supports ``len`` and slices, such as a list or an array.

        Raises:
            InvalidInput: if at least one of the requests is not valid.
        """

    def describe(self) -> dict[str, Any]:
        """Return kind and media types."""
        if isinstance(self.accepts, str) or not self.accepts:
            raise DefinitionError(
                f"{type(self).__name__}: accepts must be a list of media types, got {self.accepts!r}"
            )
        return {"kind": self.kind, "accepts": list(self.accepts)}

    def sample(self, example: object) -> Sample:
        """Return the request of a client that sends a file or bytes, or the given :class:`Request`.

        A file has the media type of its suffix, if that is accepted. Otherwise, and for bytes, it is the
        first accepted one.
        """
        match example:
            case Request():
                meta = Meta(example.content_type, urlencode(example.query), tuple(example.headers.items()))
                return Sample(example.body, meta)
            case Path():
                guessed = mimetypes.guess_type(example)[0]
                media_type = guessed if guessed and self._takes(guessed) else self.accepts[0]
                try:
                    return Sample(example.read_bytes(), Meta(media_type))
                except OSError as error:
                    raise InvalidInput(f"it cannot be read: {error}") from error
            case bytes():
                return Sample(example, Meta(self.accepts[0]))
        raise InvalidInput(f"it must be bytes, a pathlib.Path or a Request, got {example!r}")

    def _takes(self, media_type: str) -> bool:
        return not {"*", media_type, f"{media_type.partition('/')[0]}/*"}.isdisjoint(self.accepts)

    def merge(self, bodies: Sequence[bytes]) -> NoReturn:
        """Raise InvalidInput: JSON rows are not requests."""
        raise InvalidInput("this API accepts requests only at its own route, not as rows of JSON")

    def merge_raw(self, bodies: Sequence[bytes], metas: Sequence[Meta]) -> Any:
        """Return the rows from :meth:`handle_batch_request`."""
        rows = self.handle_batch_request(list(map(_request, bodies, metas)))
        if len(rows) != len(bodies):
            # A bug in the adapter, not an invalid request.
            raise RuntimeError(
                f"handle_batch_request returned {plural(len(rows), 'row')} "
                f"for {plural(len(bodies), 'request')}"
            )
        if isinstance(rows, list | tuple):
            for row in rows:
                if isinstance(row, InvalidInput):
                    try:
                        raise row
                    finally:
                        del rows, row  # else the traceback refers to the exception
        return rows


class RequestBatch(Sequence[Request]):
    """The requests of a batch: a sequence of :class:`Request`, with views of one field across all of them."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    @property
    def payloads(self) -> list[Any]:
        """The decoded body of each request; see :attr:`Request.payload`."""
        return [request.payload for request in self._requests]

    @property
    def queries(self) -> list[dict[str, str]]:
        """The query parameters of each request."""
        return [dict(request.query) for request in self._requests]

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each request, with names in lower case."""
        return [dict(request.headers) for request in self._requests]

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, at: int) -> Request: ...
    @overload
    def __getitem__(self, at: slice) -> RequestBatch: ...
    def __getitem__(self, at: int | slice) -> Request | RequestBatch:
        return RequestBatch(self._requests[at]) if isinstance(at, slice) else self._requests[at]


class Requests(RequestAdapter):
    """Accepts any request; the handler gets a :class:`RequestBatch` and returns a list with one result each.

    Each result is the complete response to its request: ``bytes``, ``str`` and ``Response`` as they are,
    anything else as JSON. A body that does not match its content type gets 400.
    """

    accepts = (JSON, "*")
    answers_each = True

    def handle_batch_request(self, requests: Sequence[Request]) -> RequestBatch:
        """Return the requests as a batch."""
        batch = RequestBatch(requests)
        _ = batch.payloads  # decodes the bodies here, where an invalid one gets 400
        return batch


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


def _parse_json(body: bytes) -> Any:
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        raise InvalidInput(f"the body is not valid JSON: {json_fault(body, error)}") from error


def _parse_form(body: bytes) -> dict[str, str]:
    text = decode_text(body, _UTF8)
    try:
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_PARTS))
    except ValueError as error:
        raise InvalidInput(f"the body is not a valid form: {error}") from error


def _text_of(data: bytes, content_type: str) -> str:
    return decode_text(data, media_type_of(content_type)[1].get("charset", _UTF8))
