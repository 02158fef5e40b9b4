"""Decoding of text in a charset and of multipart forms."""

from dataclasses import dataclass
from typing import NamedTuple

from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.wire import charsets
from uncork_workers.wire.schema import MULTIPART

# Limits the memory of a form with many tiny parts or fields.
MOST_PARTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file from a client, sent as the whole body or as a part of a form.

    Attributes:
        data: the content.
        filename: the file name from the client, empty if it sent none. Never use it as a path.
        content_type: the content type from the client, with parameters.
    """

    data: bytes
    filename: str = ""
    content_type: str = "application/octet-stream"


class Part(NamedTuple):
    """One part of a form; ``is_file`` is true if it came with a file name."""

    name: str
    file: UploadedFile
    is_file: bool


def media_type_of(content_type: str) -> tuple[str, dict[str, str]]:
    """Split a content type into media type and parameters, with names in lower case."""
    media_type, parameters = parse_options_header(content_type)
    return media_type, parameters


def read_parts(body: bytes, content_type: str) -> list[Part]:
    """Return the parts of a ``multipart/form-data`` body, in order.

    Raises:
        InvalidInput: if the body is malformed or incomplete, or has too many parts.
    """
    boundary = media_type_of(content_type)[1].get("boundary", "")
    if not boundary:
        raise InvalidInput(
            f"the Content-Type {content_type!r} has no boundary; let the HTTP client set the header of a form"
        )
    parts: list[Part] = []
    chunks: list[bytes] = []
    segment: MultipartSegment
    try:
        with PushMultipartParser(boundary, max_segment_count=MOST_PARTS, strict=True) as parser:
            # For each part: a segment, its data in chunks, then None.
            for event in parser.parse(body):
                if isinstance(event, MultipartSegment):
                    segment, chunks = event, []
                elif event is None:
                    parts.append(_part(segment, b"".join(chunks)))
                else:
                    chunks.append(event)
    except MultipartError as error:
        raise InvalidInput(f"the body is not valid {MULTIPART}: {error}") from error
    return parts


def read_upload(body: bytes, content_type: str) -> UploadedFile:
    """Return the body itself, or the only part of a form.

    Raises:
        InvalidInput: if a form is malformed or does not have exactly one part.
    """
    if media_type_of(content_type)[0] != MULTIPART:
        return UploadedFile(data=body, content_type=content_type)
    parts = read_parts(body, content_type)
    if len(parts) != 1:
        raise InvalidInput(f"the form must have exactly one part, got {len(parts)}")
    return parts[0].file


def decode_text(data: bytes, charset: str) -> str:
    """As :func:`uncork_workers.wire.charsets.decode_text`, but raise InvalidInput."""
    try:
        return charsets.decode_text(data, charset)
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def _part(segment: MultipartSegment, data: bytes) -> Part:
    file = UploadedFile(
        data=data,
        filename=segment.filename or "",
        content_type=segment.header("Content-Type", "text/plain"),
    )
    return Part(segment.name, file, segment.filename is not None)
