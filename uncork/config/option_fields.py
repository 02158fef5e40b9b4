"""Dataclasses whose fields are options of a command, declared for typer, and sizes in bytes."""

import inspect
import re
from dataclasses import MISSING, field, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

_TYPER = "typer"


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([kmgt]i?)?b?", re.IGNORECASE)


MOST_BYTES = 2**50
"""The largest accepted size."""


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


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


def read_size(text: str) -> int:
    """Parse a size such as 1000000, 500MB or 1.5 GiB; units with an i count by 1024, others by 1000.

    Raises:
        ValueError: if the text is no size above 0; the message says what is accepted.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = (found[2] or "").lower() if found else ""
    size = round(float(found[1]) * (1024 if "i" in unit else 1000) ** _POWERS[unit[:1]]) if found else 0
    if not 1 <= size <= MOST_BYTES:
        raise ValueError(
            f"{text!r} is not a size; give a number of bytes from 1 to {MOST_BYTES}, or a number with a unit "
            "such as 500MB or 2GiB"
        )
    return size
