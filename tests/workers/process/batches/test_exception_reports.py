"""Reports of exceptions in a service."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.process.batches import exception_reports
from uncork_workers.process.batches.exception_reports import exception_report

HERE = Path(__file__).name


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError


def line_of(function: Callable[[], object]) -> int:
    return function.__code__.co_firstlineno + 1


def test_it_says_what_was_raised_and_where() -> None:
    def own() -> None:
        raise KeyError("nope")

    def in_a_library() -> None:
        json.loads("{")

    told = exception_report(caught(own), error_id="77", requests=3)
    assert (told.error, told.message, told.place) == ("KeyError", "'nope'", f"{HERE}:{line_of(own)}")
    assert (told.id, told.requests) == ("77", 3)
    assert exception_report(caught(in_a_library)).place == f"{HERE}:{line_of(in_a_library)}"


def test_what_was_raised_after_the_handler_has_no_place() -> None:
    told = exception_report(WrongResult("the handler returned 1 result for 2 rows"))

    assert (told.error, told.place) == ("WrongResult", "")
    assert told.message == "the handler returned 1 result for 2 rows"


def test_a_service_that_is_installed_has_its_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> None:
        raise KeyError("nope")

    monkeypatch.setattr(exception_reports, "_LIBRARIES", (str(Path(__file__).parent),))
    assert exception_report(caught(own)).place == f"{HERE}:{line_of(own)}"


def test_hints_belong_to_the_message() -> None:
    error = ValueError("no")
    error.add_note("hint: yes")

    assert exception_report(error).message == "no\nhint: yes"


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("x" * 2000), "x" * 499 + "…"),
        (ValueError("half of a pair: \ud800"), "half of a pair: \\ud800"),
        (_Unspeakable(), ""),
        (ValueError(), ""),
    ],
)
def test_any_message_fits_into_a_frame(error: Exception, message: str) -> None:
    told = exception_report(error)

    assert told.message == message
    msgspec.msgpack.encode(told)
