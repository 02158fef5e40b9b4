"""Text input, which workers receive as a JSON string."""

from typing import ClassVar

import msgspec
from multipart import parse_options_header  # type: ignore[import-untyped]

from uncork_gateway.codecs.base import Marshalled
from uncork_gateway.codecs.json import JsonCodec
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.raw_json import SPACE
from uncork_workers.wire.charsets import decode_text
from uncork_workers.wire.schema import JSON

PLAIN = "text/plain"
_UTF8 = ("utf-8", "utf8")
_BYTE_ORDER_MARK = "\ufeff"
_string_decoder = msgspec.json.Decoder(str)


class TextCodec(JsonCodec):
    """Accepts one text, plain or as a JSON string."""

    accepts: ClassVar[tuple[str, ...]] = (PLAIN, JSON)
    summary = "One text."

    def decode(self, body: bytes, media_type: str = PLAIN) -> Marshalled:
        """Check that the body is valid text, and drop a byte order mark."""
        if media_type == JSON:
            row = body.strip(SPACE)
            decode_json(_string_decoder, row, "a JSON string")
        else:
            try:
                row = msgspec.json.encode(body.decode().removeprefix(_BYTE_ORDER_MARK))
            except UnicodeDecodeError as error:
                raise BadRequest(
                    f"the text is not valid UTF-8: {error.reason} at byte {error.start}; "
                    "for another encoding, set charset in Content-Type"
                ) from error
        return Marshalled(row, rows=1, cost=self._weigh([row]))


def to_utf8(body: bytes, content_type: str) -> bytes:
    """Convert a body from the charset that its content type names, if any, to UTF-8.

    Raises:
        BadRequest: if the charset is unknown, or the body is not valid in it.
    """
    charset = parse_options_header(content_type)[1].get("charset", "utf-8")
    if charset.lower() in _UTF8:
        return body  # the codec checks it
    try:
        return decode_text(body, charset).encode()
    except ValueError as error:
        raise BadRequest(str(error)) from error
