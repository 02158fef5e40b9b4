"""The arguments of a call, and the lists that the batched function gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_INSTANCE = ("self", "cls")


class Parameters:
    """The parameters of a batched function: a call has a value for each, the function gets a list of each.

    Args:
        function: the batched function.
        is_bound: True if the first parameter is the instance or class of a method.

    Raises:
        TypeError: if it has none, or accepts any number of arguments; if it has no signature.
    """

    def __init__(self, function: Callable[..., Any], *, is_bound: bool) -> None:
        self._name = name_of(function)
        try:
            signature = inspect.signature(function)
        except ValueError:
            raise TypeError(
                f"@batched: {self._name} has no signature that names its parameters; decorate a function "
                "that calls it"
            ) from None
        found = list(signature.parameters.values())
        if unbounded := [str(one) for one in found if one.kind in _VARIABLE]:
            raise TypeError(
                f"@batched: {self._name} must name its parameters, one list for each, got "
                f"{' and '.join(unbounded)}"
            )
        self.takes_instance = bool(found) and not is_bound and found[0].name in _INSTANCE
        self._all = found[1:] if is_bound else found
        if not self._all[self.takes_instance :]:
            raise TypeError(
                f"@batched: {self._name} must have a parameter for the list of items, got {signature}"
            )
        self._signature = signature.replace(parameters=self._all)
        self._by_name = [one.name for one in self._all if one.kind is one.KEYWORD_ONLY]

    def __len__(self) -> int:
        return len(self._all)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the value of each parameter, in their order.

        Raises:
            TypeError: if the arguments do not fit.
        """
        if not kwargs and len(args) == len(self._all) and not self._by_name:
            return tuple(args)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}() {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def example(self, example: Any) -> tuple[Any, ...]:
        """Return the values of an example call: a tuple or a dict of arguments, or the only argument.

        Raises:
            TypeError: if it does not fit.
        """
        if len(self._all) == 1:
            return (example,)
        if isinstance(example, Mapping):
            return self.bind((), example)
        return self.bind(example if isinstance(example, tuple) else (example,), {})

    def call(self, function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> Any:
        """Call the function with a list of the values of each parameter."""
        columns = [list(column) for column in zip(*calls, strict=True)]
        if not self._by_name:
            return function(*columns)
        positional = len(columns) - len(self._by_name)
        return function(*columns[:positional], **dict(zip(self._by_name, columns[positional:], strict=True)))


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function; of another callable, that of its class."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__
