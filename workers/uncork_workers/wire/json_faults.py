"""Why a text is not JSON, in words that say what to change."""

from __future__ import annotations

import codecs
import re

TOO_DEEP = "it is nested too deeply"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEX = rb"[0-9a-fA-F]{2}"
# An escape of half a pair without the other half. re finds its first bytes without a step for each byte.
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB]%b(?!\\u[dD][c-fC-F]%b)|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F]%b)"
    % (_HEX, _HEX, _HEX)
)


def json_fault(text: bytes, error: Exception) -> str:
    """Return why a text is not valid JSON; ``error`` is the parser's, which explains most faults itself."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if not text.strip():
        return "it is empty"
    if text.startswith(codecs.BOM_UTF8):
        return "it begins with a byte order mark; send UTF-8 without one"
    if text.startswith(_UTF16):
        return "it is UTF-16; send UTF-8"
    if half := _HALF.search(text.replace(rb"\\", b"00")):  # pairs of backslashes are characters
        return f"{half[0].decode()} is half of a character; send both escapes of its pair, or the character"
    return str(error).partition("; use sys.")[0]  # advice for who runs the worker
