"""The services that ``uncork serve`` runs, and the options of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from uncork.config.errors import WrongUsage
from uncork.config.names import check_service_name
from uncork.config.sources import Configuration, Kind
from uncork.server.options import ServeOptions
from uncork_gateway.protocols.limits import Limits
from uncork_workers.definition.models.targets import class_name, is_model

ONLY = ""
"""Stands for the name of the only service, unless it was given one."""

# Paths in another folder contain / or \ before any =, and modules a colon.
_NAMED = re.compile(r"(?P<name>[^=:/\\]*)=(?P<target>.+)")
_CLASS = re.compile(r".+:(?P<name>[^\W\d]\w*)")
# With several services, each has its own.
_NOT_SHARED = ("worker_port", "worker_address")


def services_of(options: ServeOptions) -> dict[str, ServeOptions]:
    """Return the options of each service, by name.

    Raises:
        WrongUsage: if a service is wrong, two have one name, or several share what only one can have.
    """
    targets = options.target or []
    if not options.services and len(targets) < 2 and not any(_NAMED.fullmatch(one) for one in targets):
        return {ONLY: options}
    named = dict(_named(options, targets))
    if len(named) > 1:
        _check_shared(options)
    found = {name: _of_one(options, name, target, alone=len(named) == 1) for name, target in named.items()}
    return {name: with_all_workers(one, found) for name, one in found.items()}


def with_all_workers(options: ServeOptions, services: Mapping[str, ServeOptions]) -> ServeOptions:
    """Return the options of a server, or of one of its services, with the number of workers of all."""
    return replace(options, all_workers=sum(one.worker_count.most for one in services.values()))


def with_name(target: str) -> str:
    """Return a target with the name of its service, as in NAME=FILE.py:SERVICE.

    Raises:
        WrongUsage: if it is no target.
    """
    return "=".join(_name_and_target(target))


def service_settings(options: ServeOptions) -> dict[str, Any]:
    """Return arguments of :class:`GatewaySettings` for a service, without those that the server decides."""
    return {
        "overrides": options.overrides,
        "own_routes": options.own_routes,
        "weight": options.weight,
        "shadow": options.shadow,
        "workers": options.worker_count.most,
        "warmup_seconds": options.warmup_seconds,
        "limits": Limits(options.max_request_rows, options.max_request_values),
        **options.server_settings,
    }


def about(name: str, text: object) -> str:
    """Return a text about a service, which begins with its name if it has one."""
    return f"{name}: {text}" if name else str(text)


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Add the name of a service, if it has one, to a ``WrongUsage`` of the block."""
    try:
        yield
    except WrongUsage as error:
        raise WrongUsage(about(name, error)) from None


def _named(options: ServeOptions, targets: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the names, each with the target of the command line, if there is one."""
    given: dict[str, str] = {}
    for text in targets:
        name, target = _name_and_target(text)
        check_service_name(name, text, advice=f"give the service another name, as in NAME={target}")
        if name in given:
            raise WrongUsage(
                f"{given[name]} and {target} are both named {name}; give one another name, as in "
                f"NAME={target}"
            )
        given[name] = target
    yield from given.items()
    yield from ((name, None) for name in options.services if name not in given)


def _name_and_target(text: str) -> tuple[str, str]:
    """Return the name of a service and its target, of which one may be part of the other."""
    if named := _NAMED.fullmatch(text):
        return named["name"], named["target"]
    if is_model(text):
        return class_name(text).lower(), text
    of_class = _CLASS.fullmatch(text)
    if of_class is None:
        raise WrongUsage(
            f"{text!r} is not of the form MODULE:SERVICE, FILE.py:SERVICE or NAME=FILE.py:SERVICE, nor a "
            "model file"
        )
    return of_class["name"].lower(), text


def _of_one(options: ServeOptions, name: str, target: str | None, *, alone: bool) -> ServeOptions:
    """Return the options of one service: its own, unless the environment or the command line has others."""
    own = options.services.get(name, Configuration())
    values: dict[str, Any] = {} if alone else dict.fromkeys(_NOT_SHARED)
    if target is not None:
        values["target"] = [target]
    kept = {key for key, source in options.sources.items() if source.kind != Kind.FILE}
    if target is None:
        # The targets of the command line are those of other services.
        kept -= {"target"}
    settings = {key: setting for key, setting in own.settings.items() if key not in kept}
    values |= {key: setting.value for key, setting in settings.items()}
    if len(values.get("target") or []) != 1:
        raise WrongUsage(f"the service {name} needs one target; set target under [services.{name}]")
    return replace(
        options,
        **values,
        sources={**options.sources, **{key: setting.source for key, setting in settings.items()}},
        api_overrides=[*options.api_overrides, *own.overrides] if alone else own.overrides,
        services={},
    )


def _check_shared(options: ServeOptions) -> None:
    """Raise WrongUsage for what only a single service can have."""
    if options.api_overrides:
        _, override = options.api_overrides[0]
        raise WrongUsage(
            f"{override.source} does not say which service it is for; with several services, set it under "
            "[services.NAME.api.API]"
        )
    for name in _NOT_SHARED:
        if getattr(options, name) is not None:
            raise WrongUsage(
                f"{options.source_of(name)}: several services cannot share it; set {name} under "
                "[services.NAME] instead"
            )
