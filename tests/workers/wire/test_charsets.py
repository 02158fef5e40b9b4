"""Charsets that clients name."""

import codecs

import pytest

from uncork_workers.wire.charsets import decode_text


@pytest.mark.parametrize("charset", ["utf-8", "UTF-16", "latin1", "cp1252", "shift_jis"])
def test_a_charset_is_decoded(charset: str) -> None:
    assert decode_text("text".encode(charset), charset) == "text"


@pytest.mark.parametrize(
    "codec", ["idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "hex"]
)
def test_codecs_of_python_that_are_not_charsets_are_rejected(codec: str) -> None:
    """Under every spelling that Python accepts."""
    for spelling in (codec, codec.replace("_", "-"), codec.upper(), codecs.lookup(codec).name):
        with pytest.raises(ValueError, match=r"^unknown charset '.*'$"):
            decode_text(rb"a\x41", spelling)
