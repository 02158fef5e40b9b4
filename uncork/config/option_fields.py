"""Dataclasses whose fields are options of a command, declared for typer."""

import inspect
from dataclasses import MISSING, field, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

_TYPER = "typer"


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:
    """Return a field that is an option: its default, and the arguments of ``typer.Option``.

    ``...`` as the default makes the option required.
    """
    return _field(default, typer.Option(*names, help=help, **settings))


def argument(default: Any, help: str, **settings: Any) -> Any:
    """Return a field that is an argument, like :func:`option`."""
    return _field(default, typer.Argument(help=help, **settings))


def _field(default: Any, info: ParameterInfo) -> Any:
    return field(default=MISSING if default is ... else default, metadata={_TYPER: info})


def option_parameters(options: type[Any]) -> dict[str, inspect.Parameter]:
    """Return a parameter for each option and argument of a dataclass, by name, inherited ones last."""
    hints = get_type_hints(options)
    own = inspect.get_annotations(options)
    return {
        one.name: inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=Annotated[hints[one.name], one.metadata[_TYPER]],
        )
        for one in sorted(fields(options), key=lambda one: one.name not in own)
        if _TYPER in one.metadata
    }


def kind_of(parameter: inspect.Parameter) -> type:
    """Return the type of an option's value: bool, int, float, list (of texts) or str."""
    hint = get_args(parameter.annotation)[0]
    kinds = {get_origin(one) or one for one in (hint, *get_args(hint))}
    return next((kind for kind in (list, bool, int, float) if kind in kinds), str)


def parameter_info(hint: Any) -> ParameterInfo | None:
    """Return typer's annotation of a type hint, if there is one."""
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((one for one in metadata if isinstance(one, ParameterInfo)), None)


def flags(*names: str) -> dict[str, str]:
    """Return the options of fields, such as --goal-ms of goal_ms."""
    return {name: f"--{name.replace('_', '-')}" for name in names}
