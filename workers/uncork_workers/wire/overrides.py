"""Settings from the command line, environment or configuration that replace arguments of ``@api``."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from uncork_workers.wire.costs import field_cost
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription
from uncork_workers.wire.values import DefinitionError, check_route

ARGUMENTS = ("route", *ApiSettings.__struct_fields__)
"""The arguments of ``@api`` that can be overridden."""

_LISTS = {"allowed_batch_sizes", "allowed_lengths"}

FIXED_IN_STREAMS = {"policy": "none", "idempotent": False}
"""A streaming API runs each request alone and once; overrides cannot change that."""


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A value for one argument of ``@api``.

    Attributes:
        api: name of the API, as written or in capitals; None for all APIs.
        argument: one of :data:`ARGUMENTS`.
        value: as in ``@api``.
        source: where the value comes from, for messages.
    """

    api: str | None = None
    argument: str
    value: Any
    source: str = ""

    def applies_to(self, api: str) -> bool:
        return self.api in (None, api, api.upper())


def for_all_apis(values: Mapping[str, Any]) -> list[Override]:
    return [Override(argument=argument, value=value) for argument, value in values.items()]


def with_overrides(api: ApiDescription, overrides: Iterable[Override]) -> ApiDescription:
    """Return the API with its overrides applied; the last override of an argument wins."""
    values = {one.argument: one.value for one in overrides if one.applies_to(api.name)}
    route = values.pop("route", api.route)
    for argument in _LISTS & values.keys():
        if isinstance(values[argument], list):
            values[argument] = tuple(values[argument])
    return msgspec.structs.replace(api, route=route, settings=msgspec.structs.replace(api.settings, **values))


def apply_overrides(service: ServiceDescription, overrides: Sequence[Override]) -> ServiceDescription:
    """Return the service with the overrides applied to its APIs.

    Raises:
        DefinitionError: if the result is invalid; the message names the overrides involved.
    """
    for one in overrides:
        if not any(one.applies_to(api.name) for api in service.apis):
            raise DefinitionError(_no_such_api(one, service))
    apis = [_checked(with_overrides(api, overrides), overrides) for api in service.apis]
    by_route: dict[str, str] = {}
    for route, api in [(route, one) for one in apis for route in one.routes]:
        other = by_route.setdefault(route, api.name)
        if other != api.name:
            raise DefinitionError(
                f"APIs {other!r} and {api.name!r} have the same route {route!r}"
                + _sources([*_of(overrides, other, "route"), *_of(overrides, api.name, "route")])
            )
    return msgspec.structs.replace(service, apis=apis)


def check_reserved(service: ServiceDescription, workers: int) -> None:
    """Check that its APIs reserve fewer workers than the service has, and at least one API reserves none.

    With 0 workers, any number may join from elsewhere.

    Raises:
        DefinitionError: otherwise.
    """
    reserved = {api.name: api.settings.workers for api in service.apis if api.settings.workers}
    others = [api.name for api in service.apis if api.name not in reserved]
    total = sum(reserved.values())
    if reserved and not others:
        raise DefinitionError(
            f"every API of {service.name} reserves workers; remove workers from one, which then uses the rest"
        )
    if workers and reserved and total >= workers:
        reserves = ", ".join([f"{count} for {name}" for name, count in reserved.items()])
        raise DefinitionError(
            f"{service.name} has --workers {workers} and reserves {reserves}, which leaves none for "
            f"{', '.join(others)}; set --workers to {total + 1} or more, or lower workers of the APIs"
        )


def _checked(api: ApiDescription, overrides: Sequence[Override]) -> ApiDescription:
    if api.streams:
        settings = msgspec.structs.replace(api.settings, **FIXED_IN_STREAMS)
        api = msgspec.structs.replace(api, settings=settings)
    try:
        check_route(api.name, api.route)
        api.check()
    except DefinitionError as error:
        last = {one.argument: one for one in _of(overrides, api.name)}
        parts = [one for argument, one in last.items() if argument in str(error)]
        raise DefinitionError(str(error) + _sources(parts)) from None
    return _with_fitting_example(api)


def _with_fitting_example(api: ApiDescription) -> ApiDescription:
    """Drop the example if it lacks the cost field, as the gateway would refuse it."""
    field = api.settings.cost_field
    if field is not None and api.example:
        try:
            field_cost(api.example, field)
        except ValueError:
            return msgspec.structs.replace(api, example=b"", example_type="")
    return api


def _of(overrides: Iterable[Override], api: str, *arguments: str) -> list[Override]:
    return [one for one in overrides if one.applies_to(api) and (not arguments or one.argument in arguments)]


def _sources(overrides: Iterable[Override]) -> str:
    sources = list(dict.fromkeys(one.source for one in overrides if one.source))
    return f" (set by {', '.join(sources)})" if sources else ""


def _no_such_api(override: Override, service: ServiceDescription) -> str:
    names = [api.name for api in service.apis]
    unknown = str(override.api)
    near = get_close_matches(unknown.lower(), names, n=1)
    return (
        f"{override.source}: {service.name} has no API {unknown!r}; "
        f"{f'did you mean {near[0]}? ' if near else ''}available APIs: {', '.join(names)}"
    )
