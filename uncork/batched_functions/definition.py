"""A batched function with its settings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, SupportsFloat

from uncork_dispatcher import ApiRules
from uncork_workers.wire.costs import MAX_COST, rounded_cost

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_INSTANCE = ("self", "cls")


class Parameters:
    """The parameters of a batched function: a call has a value for each, the function gets a list of each.

    Args:
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


@dataclass(frozen=True)
class Definition:
    """A batched function with its settings.

    Attributes:
        rules: for the dispatcher, under the function's name.
        label: the name of the function in metrics, with its module.
        is_async: False for a plain function, which runs in threads.
        of_class: True for a class method.
        concurrency: how many batches may run at once.
        cost, group_by, class_of: functions of the arguments of a call, if given.
        class_names: the names of both classes, the default first; None with one class.
        warmup: the arguments of an example call; None without.
    """

    function: Callable[..., Any]
    rules: ApiRules
    label: str
    is_async: bool
    of_class: bool
    concurrency: int
    cost: Callable[..., SupportsFloat] | None
    group_by: Callable[..., Hashable] | None
    class_of: Callable[..., str] | None
    class_names: tuple[str, str] | None
    warmup: Any

    @cached_property
    def parameters(self) -> Parameters:
        return Parameters(self.function, is_bound=False)

    @cached_property
    def of_method(self) -> Parameters:
        """Its parameters as a method: without the first, which is the instance or the class."""
        return Parameters(self.function, is_bound=True)

    def cost_of(self, values: tuple[Any, ...]) -> float | None:
        """Return the cost of a call; None if calls have no cost.

        Raises:
            ValueError: if it is not a positive number.
        """
        if self.cost is None:
            return None
        cost: Any = self.cost(*values)
        try:
            # Numbers of numpy too, but neither texts nor True.
            number = float(cost) if isinstance(cost, Real) and cost is not True else 0.0
        except OverflowError:  # an integer or a fraction beyond all floats
            number = cost = math.inf if cost > 0 else -math.inf  # Python may not write all digits
        if not 0 < number <= MAX_COST:
            raise ValueError(
                f"@batched: cost must return a number above 0 and at most {MAX_COST}, got {cost!r}"
            )
        return rounded_cost(number)

    def group_of(self, values: tuple[Any, ...]) -> Hashable:
        """Return the group of a call; equal values of different types are different groups.

        Raises:
            TypeError: if it is not hashable.
        """
        if self.group_by is None:
            return None
        value = self.group_by(*values)
        try:
            hash(value)
        except TypeError:
            raise TypeError(f"@batched: group_by must return a hashable value, got {value!r}") from None
        return type(value), value

    def is_bulk(self, values: tuple[Any, ...]) -> bool:
        """Return True if a call belongs to the second class.

        Raises:
            ValueError: if it belongs to neither.
        """
        names = self.class_names
        if self.class_of is None or names is None:
            return False
        name = self.class_of(*values)
        if name not in names:
            raise ValueError(f"@batched: class_of must return {' or '.join(map(repr, names))}, got {name!r}")
        return name == names[1]
