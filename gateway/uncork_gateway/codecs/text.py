"""Text, which travels as a JSON string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import msgspec
from multipart import parse_options_header  # type: ignore[import-untyped]

from uncork_gateway.codecs.base import Marshalled, raw_rows
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.codecs.json import SPACE
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensor_rows import json_rows
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.schema import JSON

PLAIN = "text/plain"

# Codecs of Python that are no charsets; to decode some of them takes quadratic time.
_NO_CHARSETS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
_BYTE_ORDER_MARK = "\ufeff"
_string_decoder = msgspec.json.Decoder(str)


class TextCodec:
    """A body is one text: plain, in UTF-8, or a JSON string. Either way it travels as a JSON string."""

    accepts = (PLAIN, JSON)

    def __init__(self, weigh: Weigh = unweighed) -> None:
        self._weigh = weigh

    def decode(self, body: bytes, media_type: str = PLAIN) -> Marshalled:
        """Check that the body is a text. A byte order mark is no part of it."""
        if media_type == JSON:
            row = body.strip(SPACE)
            _check_string(row)
        else:
            try:
                row = msgspec.json.encode(body.decode().removeprefix(_BYTE_ORDER_MARK))
            except UnicodeDecodeError as error:
                raise BadRequest(
                    f"the text is not valid UTF-8: {error.reason} at byte {error.start}; "
                    f"name another charset in the content type"
                ) from error
        return Marshalled(row, rows=1, cost=self._weigh([row]))

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Rows that are strings, which is the worker's to check."""
        return Marshalled(b",".join(rows), rows=len(rows), single=False, cost=self._weigh(rows))

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Leave a binary tensor as it is, unless its rows are weighed: their weight is that of JSON."""
        if tensor.form == "binary" and self._weigh is unweighed:
            return raw_rows(tensor)
        return self.marshal(json_rows(tensor))

    def encode(self, rows: bytes, *, single: bool) -> bytes:
        """The answer to one text is one JSON value."""
        return rows


def to_utf8(body: bytes, content_type: str) -> bytes:
    """A body in the charset that its content type names, as UTF-8; as it is, if it names none or UTF-8.

    Raises:
        BadRequest: if the charset is not known, or the body is not in it.
    """
    charset = parse_options_header(content_type)[1].get("charset", "utf-8")
    try:
        name = codecs.lookup(charset).name
        if name in _NO_CHARSETS:
            raise LookupError
        return body if name == "utf-8" else body.decode(charset).encode()
    except UnicodeError as error:
        raise BadRequest(f"the text is not valid {charset}: {error}") from error
    except (LookupError, ValueError):
        raise BadRequest(f"the charset {charset!r} is not known") from None


def _check_string(body: bytes) -> None:
    try:
        _string_decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body must be a JSON string: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
