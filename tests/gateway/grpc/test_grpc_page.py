"""The page on gRPC: its tables are those of the code."""

from __future__ import annotations

import re

import pytest

from tests.markdown_pages import DOCS
from uncork_gateway.errors import Refused
from uncork_gateway.grpc.messages import POOL, SERVICES
from uncork_gateway.grpc.service import FREE, NOT_SUPPORTED
from uncork_gateway.grpc.statuses import Code, code_of, status_of

PAGE = (DOCS / "reference/grpc.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def statuses() -> dict[int, Code]:
    """Return the table of statuses: HTTP status and code."""
    rows = re.findall(r"^\| ([\d, ]+) \| `(\w+)` \|", section("Statuses"), re.MULTILINE)
    return {int(status): Code[name] for several, name in rows for status in several.split(",")}


def test_an_error_becomes_the_code_of_the_page() -> None:
    expected = dict.fromkeys(range(400, 600), Code.UNKNOWN) | statuses()
    assert {status: code_of(Refused("x", status)) for status in expected} == expected


@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.UNIMPLEMENTED, Code.INTERNAL, Code.NOT_FOUND])
def test_a_code_is_counted_under_the_status_of_the_page(code: Code) -> None:
    """Those codes that errors have without a status of their own."""
    assert statuses()[status_of(code)] is code


def test_every_method_is_on_the_page() -> None:
    table = section("Services")
    for service in SERVICES:
        package, _, name = service.rpartition(".")
        assert f"`{service}`" in table or f"`{package.rpartition('.')[2]}`" in table
        for method in POOL.FindServiceByName(service).methods_by_name:
            assert f"`{method}`" in table, f"{name}/{method}"


def test_the_page_says_which_methods_need_a_key() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (yes|no) \|", section("Services"), re.MULTILINE)
    free = {name for names, key in rows for name in re.findall(r"\w+", names) if key == "no"}

    assert free == {path.rpartition(b"/")[2].decode() for path in FREE}
    assert {path.rpartition(b"/")[2].decode() for path in NOT_SUPPORTED} >= {"Classify"}
