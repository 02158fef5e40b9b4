"""The current settings of a command, of a service and of its APIs, with their sources."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from uncork.cli.configurable import CONFIGURABLE
from uncork.config.changes import plain_value, unset_text, value_text, without_secrets
from uncork.config.errors import WrongUsage
from uncork.config.names import settings_of
from uncork.server.options import ServeOptions
from uncork.server.server_options import ServerOptions
from uncork.server.workers.requirements import require_python
from uncork_gateway.services.paths import Paths, check_paths, in_force, paths_of
from uncork_workers.definition.inspect_service import inspect_service
from uncork_workers.definition.loading import TargetError
from uncork_workers.wire.overrides import ARGUMENTS, FIXED_IN_STREAMS, Override
from uncork_workers.wire.schema import ApiDescription

_DEFAULT, _CODE = "default", "code"


class Setting(msgspec.Struct, frozen=True):
    """A current setting; ``source`` is default, code, the key of a file, a variable or an option."""

    value: Any
    source: str
    text: str
    """The value for people."""


Settings = Mapping[str, Setting]
"""Settings by name."""


def settings_in_force(
    options: ServerOptions, command: str, *, names: Collection[str] | None = None
) -> dict[str, Setting]:
    """Return the settings of a command, or those of them that have these names."""
    found = {}
    for name, parameter in settings_of(CONFIGURABLE[command]).items():
        if names is None or name in names:
            value, source = without_secrets(name, getattr(options, name)), options.sources.get(name)
            text = value_text(value, unset=unset_text(parameter))
            found[name] = Setting(plain_value(value), _DEFAULT if source is None else source.name, text)
    return found


def settings_of_apis(services: Mapping[str, ServeOptions]) -> dict[str, dict[str, Settings]]:
    """Return the settings of the APIs of each service; services without a target have none.

    Raises:
        WrongUsage: if a service cannot be imported or served.
    """
    found: dict[str, dict[str, Settings]] = {}
    paths: dict[str, Paths] = {}
    for name, options in services.items():
        found[name] = {}
        if not options.target:
            continue
        require_python(options)
        try:
            described = inspect_service(
                options.service,
                trust_pickle=options.trust_pickle,
                python=options.interpreter,
                environment=options.variables,
            )
            known_as = name or described.name.lower()
            service = in_force(known_as, described, options.overrides, own_routes=options.own_routes)
            mine = paths_of(known_as, service)
            check_paths(known_as, mine, paths)
        except (TargetError, ValueError) as error:
            raise WrongUsage(str(error)) from None
        paths[known_as] = mine
        found[name] = {api.name: _arguments(api, options) for api in service.apis}
    return found


def setting(value: Any, source: str) -> Setting:
    """Return a setting that no option has."""
    return Setting(plain_value(value), source, value_text(value))


def _arguments(api: ApiDescription, options: ServeOptions) -> Settings:
    arguments = {argument: _argument(api, argument, options.overrides) for argument in ARGUMENTS}
    if not options.own_routes:
        arguments["route"] = setting(api.route, options.source_of("own_routes"))
    return arguments


def _argument(api: ApiDescription, argument: str, overrides: Iterable[Override]) -> Setting:
    value = _value(api, argument)
    concerning = [one for one in overrides if one.argument == argument and one.applies_to(api.name)]
    if concerning and not (api.streams and argument in FIXED_IN_STREAMS):
        return setting(value, concerning[-1].source)
    default = _value(ApiDescription(name=api.name, route=f"/{api.name}", input={}), argument)
    return setting(value, _DEFAULT if value == default else _CODE)


def _value(api: ApiDescription, argument: str) -> Any:
    return api.route if argument == "route" else getattr(api.settings, argument)
