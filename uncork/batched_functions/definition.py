"""A batched function with its settings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, SupportsFloat

from uncork.batched_functions.parameters import Parameters
from uncork_dispatcher import ApiRules
from uncork_workers.wire.schema import MAX_COST, rounded_cost


@dataclass(frozen=True)
class Definition:
    """A batched function with its settings.

    Attributes:
        rules: for the dispatcher, under the function's name.
        label: the name of the function in metrics, with its module.
        is_async: False for a plain function, which runs in threads.
        concurrency: how many batches may run at once.
        cost, group_by, class_of: functions of the arguments of a call, if given.
        class_names: the names of both classes, the default first; None with one class.
        warmup: the arguments of an example call; None without.
    """

    function: Callable[..., Any]
    rules: ApiRules
    label: str
    is_async: bool
    concurrency: int
    cost: Callable[..., SupportsFloat] | None
    group_by: Callable[..., Hashable] | None
    class_of: Callable[..., str] | None
    class_names: tuple[str, str] | None
    warmup: Any

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the function."""
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
        # Numbers of numpy too, but neither texts nor True.
        number = float(cost) if isinstance(cost, Real) and cost is not True else 0.0
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
