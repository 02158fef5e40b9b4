"""Commands of typer: options in dataclasses, help in groups, errors that name accepted values."""

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from uncork.cli.usage import given
from uncork.config.option_fields import kind_of, option_parameters, parameter_info

_CONTEXT = "context"
_HELP_ALL = "--help-all"
_LARGEST = 1_000_000_000
"""The largest value of a numeric option that sets no other maximum."""
_MANY = 30
"""A command with as many options explains only the first ones in ``--help``."""


class Command(TyperCommand):
    """A command that typer makes of a function."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        accepted = _accepted(self.callback)
        for parameter in self.params:
            if values := accepted.get(str(parameter.name)):
                # The library's own messages for wrong values change with its version.
                most = getattr(parameter, "max", None) or _LARGEST
                parameter.process_value = functools.partial(  # type: ignore[method-assign]
                    _processed, parameter.process_value, values, most
                )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; ``--help-all`` is ``--help`` that explains every option."""
        if _HELP_ALL in args and len(self.params) >= _MANY:
            ctx.meta[_HELP_ALL] = True
            args = ["--help"]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Explain the options that a first user needs, and name the others by group; or explain all."""
        if len(self.params) < _MANY:
            super().format_options(ctx, formatter)
            return
        records = {str(one.name): (one, one.get_help_record(ctx)) for one in self.get_params(ctx)}
        in_panels = {name for names in PANELS.values() for name in names}
        first = [(one, record) for name, (one, record) in records.items() if name not in in_panels and record]
        for title, kind in ("Arguments", "argument"), ("Options", "option"):
            with formatter.section(title):
                formatter.write_dl([record for one, record in first if one.param_type_name == kind])
        panels = {
            title: [records[name] for name in names if name in records] for title, names in PANELS.items()
        }
        if ctx.meta.get(_HELP_ALL):
            for title, named in panels.items():
                if named:
                    with formatter.section(title):
                        formatter.write_dl([record for _, record in named if record])
            return
        with formatter.section(f"More options, which {ctx.command_path} {_HELP_ALL} explains"):
            for title, named in panels.items():
                if named:
                    _write_names(formatter, title, [one.opts[0] for one, _ in named])

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence; the list of commands wraps it."""
        sentence, dot, _ = " ".join((self.help or "").split()).partition(". ")
        return sentence + dot.rstrip()


def _write_names(formatter: Any, title: str, names: Sequence[str]) -> None:
    """Write the options of a group without breaking a name."""
    indent = " " * formatter.current_indent
    formatter.write(
        textwrap.fill(
            f"{title}: {' '.join(names)}",
            formatter.width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )
        + "\n"
    )


def _processed(
    process: Callable[[Any, Any], Any], accepted: str, most: float, context: Any, value: Any
) -> Any:
    try:
        processed = process(context, value)
        if isinstance(processed, int | float) and not abs(processed) <= most:  # nor is NaN
            raise typer.BadParameter("")
        return processed
    except typer.BadParameter as error:
        if value is None:  # the option is missing
            raise
        wrong = f"must be {accepted}, got {value!r}"
        raise typer.BadParameter(wrong, ctx=error.ctx, param=error.param) from None


def _accepted(callback: Callable[..., Any] | None) -> Mapping[str, str]:
    """Return the accepted values of each parameter that does not accept any text."""
    assert callback is not None
    parameters = inspect.signature(callback, eval_str=True).parameters
    return {name: values for name, one in parameters.items() if (values := _values_of(one))}


def _values_of(parameter: inspect.Parameter) -> str:
    """Return the accepted values for people; empty if any text is accepted, or a callback decides."""
    info = parameter_info(parameter.annotation)
    if info is None or info.callback is not None:
        return ""
    hint = get_args(parameter.annotation)[0]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    least = " up" if info.min is None else f" from {info.min}"
    bounds = f"{least} to {info.max or _LARGEST}"
    kinds = {bool: "true or false", int: f"a whole number{bounds}", float: f"a number{bounds}"}
    return kinds.get(kind_of(parameter), "")


def expand_options(
    command: Callable[..., None], build: Callable[[type[Any], dict[str, Any], typer.Context], Any]
) -> Callable[..., None]:
    """Replace the parameter of a function that is a dataclass of options by one parameter for each option.

    ``build`` makes the dataclass of its type, the values of its options and the context of the command.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    [into] = [one for one in parameters.values() if is_dataclass(one.annotation)]
    options = option_parameters(into.annotation)

    @functools.wraps(command)
    def called(**values: Any) -> None:
        context: typer.Context = values.pop(_CONTEXT)
        ours = {name: values.pop(name) for name in options}
        command(**{into.name: build(into.annotation, ours, context)}, **values)

    flat = [inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for one in parameters.values():
        flat += options.values() if one is into else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in flat}
    return called


def takes_plain_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the options of a command; the field ``given`` has the names of those on the command line."""

    def build(options: type[Any], values: dict[str, Any], context: typer.Context) -> Any:
        return options(**values, given=frozenset(given(context)))

    return expand_options(command, build)


PANELS = {
    "Batches": ("policy", "goal_ms", "fair_by", "warmup_seconds", "concurrency", "retry"),
    "Workers": (
        "idle_after",
        "gpus",
        "python",
        "environment",
        "max_batches_per_worker",
        "max_worker_memory",
        "worker_memory_limit",
    ),
    "Workers on other machines": (
        "worker_port",
        "worker_host",
        "worker_token_file",
        "worker_tls_cert",
        "worker_tls_key",
        "worker_tls_client_ca",
        "worker_insecure",
        "on",
        "worker_cpus",
        "worker_gpus",
        "worker_address",
    ),
    "Model servers": (
        "protocol",
        "timeout",
        "key_header",
        "pass_header",
        "health_path",
        "server_ca",
        "inference_service",
        "model_settings",
    ),
    "Several services": ("own_routes", "weight", "shadow"),
    "Addresses": ("host", "uds", "admin_host", "admin_port", "grpc_port", "grpc_max_connection_age"),
    "Security": ("api_key_file", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "cors_origin"),
    "Limits": (
        "max_request_rows",
        "max_request_values",
        "max_body_bytes",
        "max_queue_rows",
        "max_queue_bytes",
        "max_connections",
        "max_header_fields",
        "header_timeout",
        "body_timeout",
    ),
    "Configuration and stopping": (
        "config",
        "watch_config",
        "drain_delay",
        "drain_timeout",
        "state",
        "state_folder",
    ),
    "Logs and traces": ("log_level", "log_format", "access_log", "traces"),
}
"""The names of options by group. ``--help`` explains the others, which a first user needs."""
