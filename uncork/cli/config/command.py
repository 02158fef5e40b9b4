"""``uncork config``: the settings in force, the source of each, and what a reload would change."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.table import Table

from uncork.cli.command import Command
from uncork.cli.config.diff import diff
from uncork.cli.configurable import CONFIGURABLE, takes_options
from uncork.cli.proxy.options import OPTIONS, ProxyOptions
from uncork.cli.serve.options import ServeOptions
from uncork.cli.serve.server_options import ServerOptions
from uncork.cli.terminal import plain_table, show
from uncork.cli.usage import refusals
from uncork.config.errors import WrongUsage
from uncork.config.names import settings_of
from uncork.config.values import plain_value, unset_text, value_text
from uncork_workers.definition.inspect_service import inspect_service
from uncork_workers.definition.loading import TargetError
from uncork_workers.wire.overrides import ARGUMENTS, FIXED_IN_STREAMS, Override, apply_overrides
from uncork_workers.wire.schema import ApiDescription, DefinitionError

_DEFAULT, _CODE = "default", "code"

config = typer.Typer(
    name="config",
    help="Show the settings in force, the source of each, and changes.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

config.command("diff", cls=Command)(diff)

AsJson = Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")]


class Setting(msgspec.Struct, frozen=True):
    """A setting in force; ``source`` is default, code, the key of a file, a variable or an option."""

    value: Any
    source: str
    text: str
    """The value for people."""


@config.command("serve", cls=Command)
@takes_options
def serve(options: ServeOptions, json: AsJson = False) -> None:
    """Show the settings of `uncork serve` with these options; with a TARGET, also those of its APIs.

    The service is imported in a separate process; setup() is not called.
    """
    apis: dict[str, dict[str, Setting]] = {}
    if options.target:
        with refusals("config serve"):
            apis = _apis(options)
    _print("serve", options, dict(_settings(options, "serve")), apis, json=json)


@config.command("proxy", cls=Command)
@takes_options
def proxy(options: ProxyOptions, json: AsJson = False) -> None:
    """Show the settings of `uncork proxy` with these options."""
    with refusals("config proxy"):
        imported = _imported(options)
    _print("proxy", options, {**dict(_settings(options, "proxy")), **imported}, {}, json=json)


def _settings(options: ServerOptions, command: str) -> Iterator[tuple[str, Setting]]:
    for name, parameter in settings_of(CONFIGURABLE[command]).items():
        value = getattr(options, name)
        source = options.sources.get(name)
        shown = value_text(value, unset=unset_text(parameter))
        yield name, Setting(plain_value(value), _DEFAULT if source is None else source.name, shown)


def _imported(options: ProxyOptions) -> dict[str, Setting]:
    """Return the settings imported from another system, which replace defaults."""
    imported = options.imported()
    options.settings(imported)
    if imported is None:
        return {}
    return {
        OPTIONS[field].removeprefix("--").replace("-", "_"): _setting(
            value * 1000 if field == "max_hold_s" else value, imported.source
        )
        for field, value in imported.excluding(options.given).items()
    }


def _apis(options: ServeOptions) -> dict[str, dict[str, Setting]]:
    overrides = options.overrides
    try:
        service = apply_overrides(inspect_service(options.service), overrides)
    except (TargetError, DefinitionError) as error:
        raise WrongUsage(str(error)) from None
    return {
        api.name: {argument: _argument(api, argument, overrides) for argument in ARGUMENTS}
        for api in service.apis
    }


def _argument(api: ApiDescription, argument: str, overrides: Iterable[Override]) -> Setting:
    value = _value(api, argument)
    concerning = [one for one in overrides if one.argument == argument and one.applies_to(api.name)]
    if concerning and not (api.streams and argument in FIXED_IN_STREAMS):
        return _setting(value, concerning[-1].source)
    default = _value(ApiDescription(name=api.name, route=f"/{api.name}", input={}), argument)
    return _setting(value, _DEFAULT if value == default else _CODE)


def _value(api: ApiDescription, argument: str) -> Any:
    return api.route if argument == "route" else getattr(api.settings, argument)


def _print(
    command: str,
    options: ServerOptions,
    settings: dict[str, Setting],
    apis: dict[str, dict[str, Setting]],
    *,
    json: bool,
) -> None:
    if json:
        document = {"command": command, "config": options.config, "settings": settings, "apis": apis}
        typer.echo(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
        return
    parts: list[RenderableType] = [_table(f"uncork {command}", settings)]
    for api, arguments in apis.items():
        parts += ["", _table(f"API {api}", arguments)]
    show(parts)


def _table(heading: str, settings: dict[str, Setting]) -> Table:
    table = plain_table(heading, "value", "from", words=("value", "from"))
    for name, setting in settings.items():
        table.add_row(name, setting.text, setting.source)
    return table


def _setting(value: Any, source: str) -> Setting:
    return Setting(plain_value(value), source, value_text(value))
