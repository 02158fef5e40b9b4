"""JSON log lines."""

import json
import logging
import sys
from typing import Any

import numpy as np
import pytest

from uncork_workers.process.logs import JsonFormatter


def line(message: str = "hello", *, exc_info: Any = None, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("a.b", logging.WARNING, "f.py", 1, message, (), exc_info)
    record.created = 946684800.25
    vars(record).update(extra)
    written = JsonFormatter("worker 3").format(record)
    assert "\n" not in written
    decoded: dict[str, Any] = json.loads(written)
    return decoded


def test_a_line_says_when_who_and_what() -> None:
    assert line() == {
        "time": "2000-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "a.b",
        "message": "hello",
        "process": "worker 3",
    }


def test_more_fields_are_beside() -> None:
    written = line(batch="x-7", rows=3, level="mine", nothing=None, empty="", batch_text=" [batch x-7]")

    assert (written["batch"], written["rows"], written["level"]) == ("x-7", 3, "warning")
    assert not {"nothing", "empty", "batch_text"} & written.keys()


def test_an_exception_is_text() -> None:
    try:
        raise ValueError("of the user")
    except ValueError:
        written = line(exc_info=sys.exc_info())

    assert written["exception"].startswith("Traceback (most recent call last):\n")
    assert written["exception"].endswith("ValueError: of the user")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("\ud800", "\\ud800"),
        (object, str(object)),
        ({"a": set}, {"a": str(set)}),
        (np.array([1, 2]), "[1 2]"),
    ],
    ids=["surrogate", "unknown", "nested", "array"],
)
def test_what_json_does_not_know_is_text(value: object, text: object) -> None:
    """A line that cannot be written would be lost."""
    written = line(value=value)

    assert (written["message"], written["value"]) == ("hello", text)
