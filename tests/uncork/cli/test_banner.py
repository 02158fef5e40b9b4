"""What a server says of itself when it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.uncork.server.test_listeners import PLAIN
from uncork.cli.serve import banner
from uncork.server.listeners import Listeners, open_listeners
from uncork.server.options import ServeOptions
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription

JSON = "application/json"


def described(**more: Any) -> ApiDescription:
    """An api of rows of two numbers, or what else is given."""
    ours = {"name": "predict", "route": "/predict", "input": {"kind": "json"}, "example": b"[1,2]"}
    return ApiDescription(**{**ours, "example_type": JSON, **more})


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    with open_listeners(PLAIN) as listeners:
        yield listeners


def said(
    listeners: Listeners, *apis: ApiDescription, workers: str = "1", gpus: str | None = None, name: str = ""
) -> str:
    service = ServiceDescription(name="S", apis=list(apis))
    return text_of(listeners, banner.Shown(name, service, ServeOptions(workers=workers, gpus=gpus)))


def text_of(listeners: Listeners, *services: banner.Shown) -> str:
    lines = banner.of_services(services, listeners=listeners)
    texts = [one.text.plain + "".join(f" | {told}" for told in one.details) for one in lines]
    return "\n".join(texts).replace(listeners.url, "URL")


def test_it_says_what_is_served_and_where_to_look(listeners: Listeners) -> None:
    """Goal, policy and cap of each api; pages; how to try it."""
    array = {"kind": "ndarray", "dtype": "float32", "shape": [2, None]}
    settings = ApiSettings(mb_max_latency=50, cost="bytes")
    text = said(
        listeners,
        described(name="a", route="/a", input=array, settings=ApiSettings(allowed_batch_sizes=(1, 8))),
        described(name="b", route="/b", settings=settings, answers_each=True),
        described(name="c", route="/c", input={"kind": "raw", "accepts": ["image/*", "x"]}, streams=True),
        workers="2",
        gpus="0,3",
    )

    assert re.sub(r"^uncork \S+:", "uncork:", text) == (
        "uncork: S with 2 workers, on GPUs 0, 3\n"
        "  POST URL/a | goal 300 ms, policy cork, at most 8 rows per batch"
        " | accepts ndarray float32 (2, any), returns JSON\n"
        "  POST URL/b | goal 50 ms, policy cork, at most 1000 cost units per batch | accepts json\n"
        "  POST URL/c | streams, one request at a time, for at most 60 s | accepts image/*\n"
        "  GET  URL/readyz\n"
        "  GET  URL/metrics\n"
        "  GET  URL/status\n"
        "  GET  URL/dashboard\n"
        "  GET  URL/docs\n"
        "  curl URL/a -H 'content-type: application/json' -d '[[1,2]]'"
    )


def test_several_services_are_shown_one_after_the_other(listeners: Listeners) -> None:
    """Each with its name, its workers and its APIs; one command shows how to try the first of them."""
    text = text_of(
        listeners,
        banner.Shown(
            "digits",
            ServiceDescription(name="Digits", apis=[described(example=b"")]),
            ServeOptions(workers="2", gpus="0,1"),
        ),
        banner.Shown(
            "wine",
            ServiceDescription(name="Wine", apis=[described(route="/wine")]),
            ServeOptions(workers="1-4"),
        ),
    )

    timing = "goal 300 ms, policy cork, at most 1000 rows per batch | accepts json, returns JSON"
    assert re.sub(r"^uncork \S+:", "uncork:", text).split("\n  GET")[0] == (
        "uncork: 2 services\n"
        "  digits: Digits with 2 workers, on GPUs 0, 1\n"
        f"  POST URL/predict | {timing}\n"
        "  wine: Wine with 1 to 4 workers\n"
        f"  POST URL/wine | {timing}"
    )
    assert text.count("curl") == 1
    assert text.endswith("curl URL/wine -H 'content-type: application/json' -d '[1,2]'")


@pytest.mark.parametrize(
    ("api", "line"),
    [
        (described(example=b"{}", input={"kind": "raw", "accepts": ["*"]}), "-d '{}'"),
        (described(example=b"{}", input={"kind": "json"}), "-d '{}'"),
        (described(example=b"{}", input={"kind": "dataframe", "columns": None}), "-d '[{}]'"),
        (
            described(example=b'"it\'s"', example_type="text/plain"),
            "-H 'content-type: text/plain' -d 'it'\"'\"'s'",
        ),
        (described(example=b""), None),
        (described(example=b"1" * 301), None),
    ],
)
def test_how_to_try_it(listeners: Listeners, api: ApiDescription, line: str | None) -> None:
    text = said(listeners, api)

    assert ("curl" in text) == (line is not None)
    assert line is None or text.endswith(line)


def test_pages_are_where_the_operators_are(tmp_path: Path) -> None:
    """On a port of their own; clients need a key."""
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    with open_listeners(replace(PLAIN, admin_port=0, api_key_file=keys)) as listeners:
        text = said(listeners, described()).replace(listeners.admin_url, "ADMIN")

    assert "POST URL/predict" in text
    assert "GET  ADMIN/dashboard" in text
    assert "GET  URL/docs" in text
    assert "-H 'x-api-key: KEY'" in text


def test_on_a_terminal_what_is_told_has_lines_of_its_own(
    listeners: Listeners, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = banner.address("POST", "http://h/a", "first", "second")
    banner.print_lines([line], "text")
    assert capsys.readouterr().out == "  POST http://h/a   first; second\n"

    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    banner.print_lines([line], "text")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert plain == "  POST http://h/a\n       first\n       second\n"


@pytest.mark.parametrize(
    ("workers", "text"),
    [("1", "S with 1 worker"), ("2-16", "S with 2 to 16 workers"), ("0", "S with workers on other machines")],
)
def test_it_says_how_many_workers_there_are(listeners: Listeners, workers: str, text: str) -> None:
    assert said(listeners, workers=workers).split("\n")[0].endswith(text)
