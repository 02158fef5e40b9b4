"""``uncork config``: the current settings, the source of each, what a reload would change, and a schema."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.table import Table

from uncork.cli.command import Command
from uncork.cli.config.shown import Settings, setting, settings_in_force, settings_of_apis
from uncork.cli.configurable import CONFIGURABLE, takes_options
from uncork.cli.proxy.options import OPTIONS, ProxyOptions
from uncork.cli.terminal import plain_table, print_error, show
from uncork.cli.usage import refusals
from uncork.config.changes import Effect, names_of, needing
from uncork.config.names import OF_SERVICES, settings_of
from uncork.config.schema import file_schema
from uncork.server.control_socket import DIFF, Outcome, ask
from uncork.server.options import ServeOptions
from uncork.server.server_options import ServerOptions
from uncork.server.services import ONLY, services_of

config = typer.Typer(
    name="config",
    help="Show the current settings, the source of each, and changes.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@config.command("diff", cls=Command)
def diff(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port that the server listens on.")] = 3000,
    json: Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")] = False,
) -> None:
    """Show which settings of a running `uncork serve` or `uncork proxy` a reload would change, and how.

    The server must run on this machine, as the same user. It reads its configuration file again, under the
    command line and environment with which it was started, and changes nothing. The exit code is 0 if
    nothing differs, 1 if something does, and 2 if the settings are wrong or no server is found.
    """
    outcome = ask(port, DIFF)
    if outcome.message:
        print_error("config diff", outcome.message)
        raise typer.Exit(2)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode({"changes": outcome.changes})))
    elif outcome.changes:
        _show_changes(outcome)
    else:
        typer.echo("no setting differs")
    raise typer.Exit(outcome.code)


def _show_changes(outcome: Outcome) -> None:
    headings = ("now", "after reload", "effect")
    table = plain_table("setting", *headings, words=headings)
    for change in outcome.changes:
        table.add_row(change.name, change.before, change.after, change.effect)
    show([table])
    if fixed := needing(Effect.RESTART, outcome.changes):
        typer.echo(f"\na reload would change nothing, because a new {names_of(fixed)} needs a restart")


@config.command("schema", cls=Command)
def schema() -> None:
    """Print a JSON Schema of the configuration file, for editors."""
    typer.echo(msgspec.json.format(msgspec.json.encode(file_schema(CONFIGURABLE))))


AsJson = Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")]


@config.command("serve", cls=Command)
@takes_options
def serve(options: ServeOptions, json: AsJson = False) -> None:
    """Show the settings of `uncork serve` with these options, of each service, and of its APIs.

    Services are imported in separate processes; setup() is not called.
    """
    with refusals("config serve"):
        services = services_of(options)
        apis = settings_of_apis(services)
    if ONLY in services:
        _print("serve", options, settings_in_force(options, "serve"), apis[ONLY], json=json)
        return
    of_server = settings_of(ServeOptions).keys() - set(OF_SERVICES)
    of_services = {
        name: {"settings": settings_in_force(own, "serve", names=OF_SERVICES), "apis": apis[name]}
        for name, own in services.items()
    }
    settings = settings_in_force(options, "serve", names=of_server)
    _print("serve", options, settings, {}, of_services, json=json)


@config.command("proxy", cls=Command)
@takes_options
def proxy(options: ProxyOptions, json: AsJson = False) -> None:
    """Show the settings of `uncork proxy` with these options."""
    with refusals("config proxy"):
        imported = _imported(options)
    _print("proxy", options, {**settings_in_force(options, "proxy"), **imported}, {}, json=json)


def _imported(options: ProxyOptions) -> Settings:
    """Return the settings imported from another system, which replace defaults."""
    imported = options.imported()
    options.settings(imported)
    if imported is None:
        return {}
    return {
        OPTIONS[field].removeprefix("--").replace("-", "_"): setting(
            value * 1000 if field == "max_hold_s" else value, imported.source
        )
        for field, value in imported.excluding(options.given).items()
    }


def _print(
    command: str,
    options: ServerOptions,
    settings: Settings,
    apis: Mapping[str, Settings],
    services: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    json: bool,
) -> None:
    """Print settings of a server and its APIs, or of a server and each of its services with a name."""
    if json:
        document: dict[str, Any] = {"command": command, "config": options.config}
        document |= {"settings": settings, "apis": apis}
        if services is not None:
            document["services"] = services
        typer.echo(msgspec.json.format(msgspec.json.encode(document, enc_hook=str)))
        return
    tables = [_table(f"uncork {command}", settings)]
    tables += [_table(f"API {api}", arguments) for api, arguments in apis.items()]
    for name, service in (services or {}).items():
        tables.append(_table(f"service {name}", service["settings"]))
        tables += [_table(f"API {name}/{api}", arguments) for api, arguments in service["apis"].items()]
    parts: list[RenderableType] = [tables[0]]
    for table in tables[1:]:
        parts += ["", table]
    show(parts)


def _table(heading: str, settings: Settings) -> Table:
    table = plain_table(heading, "value", "from", words=("value", "from"))
    for name, one in settings.items():
        table.add_row(name, one.text, one.source)
    return table
