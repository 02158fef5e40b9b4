"""Bodies of media types that are no rows: text in a charset, and forms with parts."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import NamedTuple

from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from uncork_workers.definition.adapters.base import InvalidInput

MULTIPART = "multipart/form-data"
MOST_PARTS = 1000
"""More parts or fields than this are refused: each costs memory, however small it is."""

# Codecs of Python that are no charsets; to decode some of them takes quadratic time.
_NO_CHARSETS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file that a client sent, as the whole body or as a part of a form.

    Attributes:
        data: its content.
        filename: what the client calls it; empty if it does not say. Not to be used as a path.
        content_type: as the client says it, with parameters.
    """

    data: bytes
    filename: str = ""
    content_type: str = "application/octet-stream"


class Part(NamedTuple):
    """One part of a form; ``is_file`` says whether it came with the name of a file."""

    name: str
    file: UploadedFile
    is_file: bool


def media_type_of(content_type: str) -> tuple[str, dict[str, str]]:
    """A content type as media type and parameters, names in lower case."""
    media_type, parameters = parse_options_header(content_type)
    return media_type, parameters


def read_parts(body: bytes, content_type: str) -> list[Part]:
    """The parts of a body of type multipart/form-data, in order.

    Raises:
        InvalidInput: if it is malformed or incomplete, or has too many parts.
    """
    boundary = media_type_of(content_type)[1].get("boundary", "")
    parts: list[Part] = []
    chunks: list[bytes] = []
    segment: MultipartSegment
    try:
        with PushMultipartParser(boundary, max_segment_count=MOST_PARTS, strict=True) as parser:
            # A segment, then its data in chunks, then None.
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
    """The body itself, or the only part of a form.

    Raises:
        InvalidInput: if it is a form that is malformed, or has not one part.
    """
    if media_type_of(content_type)[0] != MULTIPART:
        return UploadedFile(data=body, content_type=content_type)
    parts = read_parts(body, content_type)
    if len(parts) != 1:
        raise InvalidInput(f"the form must have one part, it has {len(parts)}")
    return parts[0].file


def decode_text(data: bytes, charset: str) -> str:
    """Text in a charset.

    Raises:
        InvalidInput: if the charset is not known, or the text is not in it.
    """
    try:
        if codecs.lookup(charset).name in _NO_CHARSETS:
            raise LookupError
        text = data.decode(charset)
        text.encode()  # some charsets have words for halves of characters
    except UnicodeError as error:
        raise InvalidInput(f"the text is not valid {charset}: {error}") from error
    except (LookupError, ValueError):
        raise InvalidInput(f"the charset {charset!r} is not known") from None
    return text


def _part(segment: MultipartSegment, data: bytes) -> Part:
    file = UploadedFile(
        data=data,
        filename=segment.filename or "",
        content_type=segment.header("Content-Type", "text/plain"),
    )
    return Part(segment.name, file, segment.filename is not None)
