"""Charsets that clients name."""

import codecs

import pytest

from uncork_workers.wire.charsets import decode_text


@pytest.mark.parametrize(
    "codec", ["idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape", "hex"]
)
def test_codecs_of_python_that_are_not_charsets_are_rejected(codec: str) -> None:
    """Under every spelling that Python accepts."""
    for spelling in (codec, codec.replace("_", "-"), codec.upper(), codecs.lookup(codec).name):
        with pytest.raises(ValueError, match=r"^unknown charset '.*'$"):
            decode_text(rb"a\x41", spelling)


def test_python_is_never_asked_for_a_name_of_the_client() -> None:
    """It remembers each name for ever, known or not, and each way to write one."""
    asked: list[str] = []

    def search(name: str) -> None:
        asked.append(name)

    codecs.register(search)
    try:
        for charset in ("x-1", "no charset", "é", "x" * 100_000, "base64", "rot13", "hex"):
            with pytest.raises(ValueError, match="unknown charset"):
                decode_text(b"a", charset)
        for charset in ("UTF-8", "utf8", "Utf_8", "utf---8", "utf/8", "latin1", "ISO-8859-15", "shift_jis"):
            assert decode_text(b"a", charset) == "a"
    finally:
        codecs.unregister(search)
    assert asked == []
