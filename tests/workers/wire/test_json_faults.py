from __future__ import annotations

import tracemalloc

import pytest

from uncork_workers.wire.json_faults import json_fault

PARSER = ValueError("what the parser says")


HALF = "is half of a character; send both escapes of its pair, or the character"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xef\xbb\xbf[1]", "it begins with a byte order mark; send UTF-8 without one"),
        ("[1]".encode("utf-16"), "it is UTF-16; send UTF-8"),
        (b'"\\ud800"', f"\\ud800 {HALF}"),
        (b'"a\\uDC00"', f"\\uDC00 {HALF}"),
        (b'"\\\\\\ud83d\\n"', f"\\ud83d {HALF}"),
        (b'"\\ud83d\\ude00\\ude01"', f"\\ude01 {HALF}"),
        (b'"\\ud83d\\ud83d\\ude00"', f"\\ud83d {HALF}"),
        (b'"\\\\ud8d8\\udfff"', f"\\udfff {HALF}"),
        (b'["\\ud83d\\ude00"', "what the parser says"),
        (b'["\\\\ud800"', "what the parser says"),
        (b"[1,", "what the parser says"),
    ],
)
def test_a_fault_is_named(text: bytes, says: str) -> None:
    assert json_fault(text, PARSER).startswith(says)


def test_many_backslashes_take_one_pass() -> None:
    """Quadratic work would not end here."""
    assert json_fault(b'"' + b"\\" * 4_000_001, PARSER) == "what the parser says"


def test_many_backslashes_take_no_memory() -> None:
    text = b'"' + b"\\" * 400_001
    tracemalloc.start()
    json_fault(text, PARSER)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 2 * len(text)
