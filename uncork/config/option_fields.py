"""Dataclasses whose fields are annotated for typer, as parameters of commands."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo


def option_parameters(options: type[Any]) -> dict[str, inspect.Parameter]:
    """Return a parameter for each annotated field of a dataclass, by name, inherited fields last."""
    hints = get_type_hints(options, include_extras=True)
    own = inspect.get_annotations(options)
    return {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(options), key=lambda field: field.name not in own)
        if parameter_info(hints[field.name]) is not None
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
