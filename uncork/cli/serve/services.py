"""The services that ``uncork serve`` is told to run, and the options of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from uncork.cli.serve.options import ServeOptions
from uncork.cli.serve.server_options import ServiceValues
from uncork.config.errors import WrongUsage
from uncork.config.names import check_service_name
from uncork.config.sources import Kind

ONLY = ""
"""Stands for the name of the only service, unless it was given one."""

_NAMED = re.compile(r"(?P<name>[^=:/\\.]+)=(?P<target>.+)")
_NOTHING = ServiceValues({}, {}, ())
# With several services, each has its own.
_NOT_SHARED = ("worker_port", "worker_address")


def services_of(options: ServeOptions) -> dict[str, ServeOptions]:
    """Return the options of each service, by name.

    Raises:
        WrongUsage: if a service is wrong, or two have one name.
    """
    targets = options.target or []
    if not options.services and len(targets) < 2 and not any(_NAMED.fullmatch(one) for one in targets):
        return {ONLY: options}
    _check_shared(options)
    named = dict(_named(options, targets))
    found = {name: _of_one(options, name, target) for name, target in named.items()}
    everything = sum(one.worker_count.most for one in found.values())
    return {name: replace(one, all_workers=everything) for name, one in found.items()}


def _named(options: ServeOptions, targets: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the names, each with the target of the command line, if there is one."""
    given: dict[str, str] = {}
    for text in targets:
        found = _NAMED.fullmatch(text)
        name, target = (found["name"], found["target"]) if found else (text.rpartition(":")[2].lower(), text)
        check_service_name(name, "TARGET")
        if name in given:
            raise WrongUsage(
                f"{given[name]} and {target} are both named {name}; give one another name, as in "
                f"NAME={target}"
            )
        given[name] = target
    yield from given.items()
    yield from ((name, None) for name in options.services if name not in given)


def _of_one(options: ServeOptions, name: str, target: str | None) -> ServeOptions:
    """Return the options of one service: its own, unless the environment or the command line has others."""
    own = options.services.get(name, _NOTHING)
    sources = dict(options.sources)
    values = {}
    for key, value in own.values.items():
        general = options.sources.get(key)
        if general is None or general.kind == Kind.FILE:
            values[key], sources[key] = value, own.sources[key]
    targets = [target] if target is not None else own.values.get("target") or []
    if len(targets) != 1:
        raise WrongUsage(f"the service {name} needs one target; set target under [services.{name}]")
    return replace(
        options,
        **{**dict.fromkeys(_NOT_SHARED), **values, "target": targets},
        sources=sources,
        api_overrides=own.api_overrides,
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
            flag = options.sources[name].name
            raise WrongUsage(f"{flag}: each service needs its own; set {name} under [services.NAME]")
