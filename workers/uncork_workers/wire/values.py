"""What the arguments of ``@api`` may be, one by one: numbers, routes, headers and classes."""

import math
import re
from collections.abc import Mapping
from typing import TypeGuard

from uncork_workers.wire.costs import COST_IN_BYTES, MAX_COST, rounded_cost
from uncork_workers.wire.groups import Source, is_header_name, sources_of

# Paths that the gateway serves itself, now or in a later version.
RESERVED_ROUTES = (
    "/livez",
    "/readyz",
    "/healthz",
    "/ping",
    "/metrics",
    "/status",
    "/openapi.json",
    "/docs",
    "/v1/models",
    "/v2",
)
RESERVED_PREFIXES = ("/v1/models/", "/v2/", "/dashboard", "/docs/", "/readyz/")
# Larger numbers do not fit into the messages between gateway and worker, and mean nothing.
MAX_COUNT = 10**9
MAX_SECONDS = 10**9
MAX_BATCH_BYTES = 2**31
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "x-api-key")


class DefinitionError(ValueError):
    """A service is defined incorrectly; the message names the API, the argument and the accepted values."""


def group_sources(api: str, group_by: object) -> list[Source]:
    """Return the sources that the ``group_by`` of an API names.

    Raises:
        DefinitionError: if it is wrong.
    """
    try:
        return sources_of(group_by)
    except ValueError as error:
        raise DefinitionError(f"API {api!r}: {error}") from None


def header_names(api: str, headers: object) -> tuple[str, ...]:
    """Return the ``headers`` of an API in lower case.

    Raises:
        DefinitionError: if they are not names, or handlers must not read one.
    """
    accepted = "a tuple of names such as ('x-tenant',)"
    if not isinstance(headers, tuple | list):
        hint = f"; write headers=({headers!r},)" if isinstance(headers, str) else ""
        raise wrong_value(api, "headers", accepted, headers, hint)
    names: list[str] = []
    for name in headers:
        if not isinstance(name, str) or not is_header_name(name):
            raise wrong_value(api, "headers", accepted, headers)
        if name.lower() in _SECRET_HEADERS:
            raise DefinitionError(
                f"API {api!r}: headers names {name!r}, which may hold credentials; handlers cannot read it. "
                "Have a proxy in front check it and send what the handler needs, such as 'x-tenant'"
            )
        if name.lower() in names:
            raise DefinitionError(f"API {api!r}: headers names {name!r} twice; remove one")
        names.append(name.lower())
    return tuple(names)


def check_classes(api: str, classes: object) -> None:
    """Check the ``classes`` of an API.

    Raises:
        DefinitionError: if they are wrong.
    """
    accepted = "two names with goals in milliseconds, such as {'interactive': 100, 'bulk': 10_000}"
    if not isinstance(classes, Mapping) or len(classes) != 2:
        raise wrong_value(api, "classes", accepted, classes)
    for name in classes:
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise wrong_value(api, "the name of a class", "letters, digits, '-' and '_'", name)
    first, second = classes.values()
    check_number(api, "the goal of the first class", first, unit="milliseconds", most=1000 * MAX_SECONDS)
    if second is None:
        return
    check_number(api, "the goal of the second class", second, unit="milliseconds", most=1000 * MAX_SECONDS)
    if not first < second:
        raise DefinitionError(
            f"API {api!r}: the goals of classes must rise, got {first!r} and {second!r}; list the class with "
            "the shorter goal first"
        )


def is_count(value: object, *, most: int = MAX_COUNT) -> TypeGuard[int]:
    """Return whether a value is a whole number from 1 to ``most``."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _is_number(value: object, *, most: float) -> bool:
    """Return whether a value is a number above 0 and at most ``most``."""
    # An integer may be too large to convert to a float, so compare instead.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


def wrong_value(api: str, argument: str, accepted: str, value: object, hint: str = "") -> DefinitionError:
    return DefinitionError(f"API {api!r}: {argument} must be {accepted}, got {value!r}{hint}")


def not_for_streams(api: str, argument: str, reason: str) -> DefinitionError:
    return DefinitionError(f"API {api!r}: {argument} does not apply to streaming: {reason}; remove it")


def is_reserved(route: str) -> bool:
    """Return whether the gateway uses a path itself, now or in a later version."""
    return route in RESERVED_ROUTES or route.startswith(RESERVED_PREFIXES)


def check_route(api: str, route: object) -> None:
    """Check that a route is a plain path that the gateway does not use itself.

    Raises:
        DefinitionError: if it is not.
    """
    if not isinstance(route, str) or not route.startswith("/") or route == "/":
        raise wrong_value(api, "route", f"a path such as '/{api}'", route)
    if any(mark in route for mark in "{}?# \t\r\n"):
        raise DefinitionError(
            f"API {api!r}: route {route!r} must be a plain path without {{}}, ?, # or spaces"
        )
    if is_reserved(route):
        taken = ", ".join((*RESERVED_ROUTES, *RESERVED_PREFIXES))
        raise DefinitionError(f"API {api!r}: route {route!r} is reserved by the gateway (reserved: {taken})")


def check_number(api: str, argument: str, value: object, *, unit: str, most: int) -> None:
    if not _is_number(value, most=most):
        accepted = f"a positive number of {unit}" + _at_most(value, most)
        raise wrong_value(api, argument, accepted, value, _unquoted(value))


def check_count(api: str, argument: str, value: object, *, unit: str, most: int) -> None:
    if not is_count(value, most=most):
        hint = _unquoted(value, whole=True)
        accepted = f"an integer number of {unit}, at least 1" + _at_most(value, most)
        raise wrong_value(api, argument, accepted, value, hint)


def _at_most(value: object, most: int) -> str:
    """Return the upper limit for an error message, if the value exceeds it."""
    return f" and at most {most}" if isinstance(value, int | float) and most < value < math.inf else ""


def _unquoted(value: object, *, whole: bool = False) -> str:
    """Suggest the number if the value is a positive number in quotes."""
    try:
        number = float(value) if isinstance(value, str) else 0.0
    except ValueError:
        return ""
    is_meant = 0 < number < math.inf and (number.is_integer() or not whole)
    return f"; write {number:.15g}" if is_meant else ""


def check_sizes(api: str, sizes: object) -> None:
    if sizes is None:
        return
    fine = isinstance(sizes, tuple) and sizes and all(is_count(size) for size in sizes)
    if not fine or list(sizes) != sorted(set(sizes)):  # type: ignore[call-overload]
        raise wrong_value(
            api, "allowed_batch_sizes", f"a list of increasing integers from 1 to {MAX_COUNT}", sizes
        )


def check_lengths(api: str, lengths: object) -> None:
    if lengths is None:
        return
    if isinstance(lengths, tuple) and lengths and all(_is_number(each, most=MAX_COST) for each in lengths):
        units = [rounded_cost(each) for each in lengths]
        if units == sorted(set(units)):
            return
    accepted = f"a list of increasing numbers, above 0 and at most {MAX_COST}"
    raise wrong_value(api, "allowed_lengths", accepted, lengths)


def check_cost(api: str, cost: object) -> None:
    if cost is None or (isinstance(cost, str) and cost):
        return
    if not _is_number(cost, most=MAX_COST):
        accepted = f"a number above 0 and at most {MAX_COST}, {COST_IN_BYTES!r} or the name of a field"
        raise wrong_value(api, "cost", accepted, cost)
