"""What a server says of itself when it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.expected import check_texts
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


JSON_ROWS, COLUMNS = {"kind": "json"}, {"kind": "dataframe", "columns": None}
ARRAY = {"kind": "ndarray", "dtype": "float32", "shape": [2, None]}
IMAGES = {"kind": "raw", "accepts": ["image/*", "x"]}
APIS = [
    described(name="a", route="/a", input=ARRAY, settings=ApiSettings(allowed_batch_sizes=(1, 8))),
    described(name="b", route="/b", settings=ApiSettings(mb_max_latency=50, cost="bytes"), answers_each=True),
    described(name="c", route="/c", input=IMAGES, streams=True),
]
TO_TRY = [
    described(example=b"{}", input={"kind": "raw", "accepts": ["*"]}),
    described(example=b"{}", input=JSON_ROWS),
    described(example=b"{}", input=COLUMNS),
    described(example=b'"it\'s"', example_type="text/plain"),
    described(example=b""),
    described(example=b"1" * 301),
]


def test_what_is_said(listeners: Listeners, tmp_path: Path) -> None:
    """What is served, with its goals and limits; how to try the first of it; and where to look."""
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    digits, wine = (
        ServiceDescription(name=name, apis=[described(route=f"/{name}", example=example)])
        for name, example in (("Digits", b""), ("Wine", b"[1,2]"))
    )
    texts = [
        said(listeners, *APIS, workers="2", gpus="0,3"),
        text_of(
            listeners,
            banner.Shown("digits", digits, ServeOptions(workers="2", gpus="0,1")),
            banner.Shown("wine", wine, ServeOptions(workers="1-4")),
        ),
        *(said(listeners, workers=workers) for workers in ("1", "0")),
        *(said(listeners, api) for api in TO_TRY),
    ]
    with open_listeners(replace(PLAIN, admin_port=0, api_key_file=keys)) as for_operators:
        texts.append(said(for_operators, described()).replace(for_operators.admin_url, "ADMIN"))
    without_version = [re.sub(r"^uncork \S+:", "uncork:", one) for one in texts]
    check_texts(Path(__file__).parent / "banner.txt", "\n\n".join(without_version) + "\n")


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
