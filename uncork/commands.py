"""Commands whose options are the fields of a dataclass: declared once, for every command that takes them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a function, of whose parameters one is a dataclass of options, one that typer can take.

    Each field that is annotated for typer becomes a parameter, those of the class itself before those of its
    bases.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    [into] = [one for one in parameters.values() if is_dataclass(one.annotation)]
    options = option_parameters(into.annotation)

    @functools.wraps(command)
    def called(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        command(**{into.name: into.annotation(**given)}, **values)

    flat = [
        parameter for one in parameters.values() for parameter in (options.values() if one is into else [one])
    ]
    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in flat}
    return called


def option_parameters(options: type[Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a command that are the fields of a dataclass, by name."""
    hints = get_type_hints(options, include_extras=True)
    own = inspect.get_annotations(options)
    return {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
        )
        for field in sorted(fields(options), key=lambda field: field.name not in own)
        if _is_for_typer(hints[field.name])
    }


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default


def _is_for_typer(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(isinstance(one, ParameterInfo) for one in get_args(hint))
