"""Decodes JSON of clients and servers into types."""

from typing import TypeVar

import msgspec

from uncork_gateway.protocols.raw_json import Malformed
from uncork_workers.wire.json_faults import json_fault

_T = TypeVar("_T")


def decode_json(
    decoder: msgspec.json.Decoder[_T], text: bytes | msgspec.Raw, expected: str, *, name: str = "the body"
) -> _T:
    """Decode a body, or a part of it that errors call ``name``; they say that it must be ``expected``.

    Raises:
        Malformed: if the text is not JSON, or not of the decoder's type.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Malformed(f"{name} must be {expected}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{name} is not valid JSON: {json_fault(bytes(text), error)}") from error
