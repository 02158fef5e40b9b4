"""Decoding of text in the charset that a client names, the same in gateway and worker."""

import encodings
import pkgutil
from encodings.aliases import aliases

# Python codecs that are not charsets. Some convert bytes to bytes; decoding others takes quadratic time.
_NO_CHARSETS = frozenset(
    (
        *("aliases", "base64_codec", "bz2_codec", "charmap", "hex_codec", "idna", "mbcs", "oem", "punycode"),
        *("quopri_codec", "raw_unicode_escape", "rot_13", "undefined", "unicode_escape", "uu_codec"),
        "zlib_codec",
    )
)
_CODECS = {module.name for module in pkgutil.iter_modules(encodings.__path__)} - _NO_CHARSETS
# Python remembers the name of every codec that it is asked for, known or not, for ever.
_CHARSETS = {
    **{alias: codec for alias, codec in aliases.items() if codec in _CODECS},
    **{codec: codec for codec in _CODECS},
}
_MAX_NAME = 40


def decode_text(data: bytes, charset: str) -> str:
    """Decode text.

    Raises:
        ValueError: if the charset is unknown, or the data is not valid in it.
    """
    is_name = charset.isascii() and len(charset) <= _MAX_NAME
    codec = _CHARSETS.get(encodings.normalize_encoding(charset).lower()) if is_name else None
    if codec is None:
        raise ValueError(f"unknown charset {charset!r}")
    try:
        text = data.decode(codec)
        text.encode()  # some charsets, such as UTF-7, can encode lone surrogates
    except UnicodeError as error:
        raise ValueError(f"the text is not valid {charset}: {error}") from error
    return text
