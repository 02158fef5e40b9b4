"""Why a text is not JSON, in words that say what to change."""

from __future__ import annotations

import codecs
import re

TOO_DEEP = "it is nested too deeply"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FIRST, _SECOND = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# An escape of half a pair without the other half. An even number of backslashes before it are characters.
# Without the plus sign, re would keep a state for each two of them.
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*+(%b(?!%b)|(?<!%b)%b)" % (_FIRST, _SECOND, rb"\\u[dD][89abAB]..", _SECOND)
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
    if half := _HALF.search(text):
        return f"{half[1].decode()} is half of a character; send both escapes of its pair, or the character"
    return str(error).partition("; use sys.")[0]  # advice for who runs the worker
