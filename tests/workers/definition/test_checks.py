"""Checks of a service class before it runs."""

from typing import Any

import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, describe_service, find_apis


class Plain(Service):
    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        return items


def generating(self: Service) -> Any:
    yield


def selfless() -> None: ...


def loose(self: Service, *paths: str, size: int = 3, **more: int) -> None: ...


@pytest.mark.parametrize(
    "members",
    [
        {"__init__": loose, "setup": loose},
        {"setup": staticmethod(selfless), "teardown": classmethod(print)},
        {"setup": print},
    ],
)
def test_what_can_be_called_is_fine(members: dict[str, Any]) -> None:
    describe_service(type("Fine", (Plain,), members))


def version(self: Service, rows: Any) -> Any:
    """An API of that name."""
    return rows


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({}, ""),
        ({"version": "2.1.0"}, "2.1.0"),
        ({"version": api(input=Json())(version)}, ""),
        ({"version": property(generating)}, ""),
    ],
)
def test_a_service_may_have_a_version(members: dict[str, Any], said: str) -> None:
    """A member of that name that is no text, such as an API, has another purpose."""
    assert describe_service(type("Fine", (Plain,), members)).version == said


def test_helpers_may_be_static() -> None:
    find_apis(type("Fine", (Plain,), {"help": staticmethod(selfless)}))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"mb_max_latency": 0.3}, r"mb_max_latency is in milliseconds, .* for 0.3 seconds, write 300$"),
        ({"timeout": 60_000}, r"timeout is in seconds, .* for 60000 milliseconds, write 60$"),
    ],
)
def test_a_value_in_another_unit_is_warned_of(arguments: dict[str, Any], told: str) -> None:
    with pytest.warns(UserWarning, match=f"^API 'echo': {told}") as caught:

        class Odd(Service):
            @api(input=Json(), **arguments)
            def echo(self, items: Any) -> Any: ...

    [warning] = caught
    assert warning.filename == __file__
    assert find_apis(Odd)
