"""The paths of services' APIs, and checks for conflicts between services."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from uncork_gateway.versions import ServiceName
from uncork_workers.wire.overrides import Override, apply_overrides
from uncork_workers.wire.schema import ServiceDescription
from uncork_workers.wire.values import is_reserved


class Paths(NamedTuple):
    """The paths of a service's APIs: those that their code defines, and those below ``/<service>/``."""

    own: Collection[str] = ()
    by_name: Collection[str] = ()


def in_force(
    name: str, service: ServiceDescription, overrides: Sequence[Override], *, own_routes: bool
) -> ServiceDescription:
    """Return a service with overrides, as clients see it; without ``own_routes``, only below its name.

    Raises:
        DefinitionError: if an override is invalid.
    """
    effective = apply_overrides(service, overrides)
    if own_routes:
        return effective
    of = ServiceName.read(name).name
    apis = [
        structs.replace(
            api, route=f"/{of}/{api.name}", aliases=tuple([f"/{of}{path}" for path in api.aliases])
        )
        for api in effective.apis
    ]
    return structs.replace(effective, apis=apis)


def paths_of(name: str, service: ServiceDescription) -> Paths:
    """Return the paths of a service's APIs, after :func:`in_force`."""
    return Paths([path for api in service.apis for path in api.routes], paths_by_name(name, service))


def paths_by_name(name: str, service: ServiceDescription) -> dict[str, str]:
    """Return the paths below ``/<service>/``, each with the name of its API.

    A version also has paths of its own, below ``/<service>@<version>/``.
    """
    names = dict.fromkeys((ServiceName.read(name).name, name))
    paths = {f"/{one}/{api.name}": api.name for one in names for api in service.apis}
    return {path: api for path, api in paths.items() if not is_reserved(path)}


def check_paths(name: str, mine: Paths, others: Mapping[str, Paths]) -> None:
    """Check that a service has no path in common with others; its versions may share paths.

    Raises:
        ValueError: if it shares a path.
    """
    of = ServiceName.read(name).name
    for other, theirs in others.items():
        if ServiceName.read(other).name == of:
            continue
        for path in mine.own:
            if path in theirs.own:
                raise ValueError(
                    f"the services {other} and {name} both serve POST {path}; set own_routes = false for "
                    f"one of them, so that its APIs are served below /{other}/ or /{name}/ only, or "
                    "change route= in its code"
                )
        for own, by_name, owner in (
            (mine.own, theirs.by_name, other),
            (theirs.own, mine.by_name, name),
        ):
            for path in own:
                if path in by_name:
                    raise ValueError(
                        f"an API has the route {path}, which belongs to the service {owner}; change route= "
                        "in its code"
                    )
