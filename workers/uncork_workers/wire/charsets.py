"""Decoding of text in the charset that a client names, the same in gateway and worker."""

import codecs

# Python codecs that are not charsets, as ``codecs.lookup`` names them; decoding some takes quadratic time.
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")


def decode_text(data: bytes, charset: str) -> str:
    """Decode text.

    Raises:
        ValueError: if the charset is unknown, or the data is not valid in it.
    """
    try:
        if codecs.lookup(charset).name in _NO_CHARSETS:
            raise LookupError
        text = data.decode(charset)
        text.encode()  # some charsets, such as UTF-7, can encode lone surrogates
    except UnicodeError as error:
        raise ValueError(f"the text is not valid {charset}: {error}") from error
    except (LookupError, ValueError):
        raise ValueError(f"unknown charset {charset!r}") from None
    return text
