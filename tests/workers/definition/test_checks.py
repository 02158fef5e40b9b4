"""Checks of a service class before it runs."""

from typing import Any

import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, describe_service, find_apis
from uncork_workers.wire.values import DefinitionError


class Plain(Service):
    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        return items


async def asynchronous(self: Service) -> None: ...


def generating(self: Service) -> Any:
    yield


def wanting(self: Service, path: str, *, size: int, mode: str = "r") -> None: ...


def selfless() -> None: ...


def refusal(**members: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        describe_service(type("Odd", (Plain,), members))
    return str(caught.value)


@pytest.mark.parametrize("method", ["setup", "teardown"])
def test_setup_and_teardown_are_plain(method: str) -> None:
    assert refusal(**{method: asynchronous}) == (
        f"service Odd: {method} must be a plain method, not async; run async code in it with asyncio.run(...)"
    )
    assert refusal(**{method: generating}) == f"service Odd: {method} must be a plain method, without yield"
    assert refusal(**{method: selfless}) == (
        f"service Odd: {method} is called without arguments; write def {method}(self), "
        f"not def {method}() -> None"
    )
    assert f"write def {method}(self), not def {method}(self: " in refusal(**{method: wanting})


def test_a_service_is_made_without_arguments() -> None:
    assert refusal(__init__=wanting) == (
        "service Odd: __init__ must not require arguments, but requires path, size; "
        "initialize the service in setup(self)"
    )


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


@pytest.mark.parametrize("number", [2, 1.5])
def test_a_version_is_no_number(number: float) -> None:
    assert refusal(version=number) == (
        f'service Odd: version must be a string, got {number}; write version = "{number}"'
    )


@pytest.mark.parametrize("wrapper", [staticmethod, classmethod, property])
def test_an_api_is_a_plain_method(wrapper: Any) -> None:
    def echo(self: Service, items: Any) -> Any: ...

    message = f"API 'echo': remove @{wrapper.__name__}; an API is a plain method, def echo(self, rows)"
    with pytest.raises(DefinitionError) as below:
        api(input=Json())(wrapper(echo))
    assert str(below.value) == message
    if wrapper is not property:
        with pytest.raises(DefinitionError) as above:
            find_apis(type("Odd", (Plain,), {"echo": wrapper(api(input=Json())(echo))}))
        assert str(above.value) == message


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
