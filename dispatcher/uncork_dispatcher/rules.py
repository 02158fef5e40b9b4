"""The settings of one API, and the error about their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from uncork_dispatcher.policies import make_policy


class SettingError(ValueError):
    """Settings have values that are not accepted; the message begins with their names.

    Args:
        settings: the names of the fields or arguments at fault.
        says: the rest of the message, from the space or colon after the names on.
        of: what the settings belong to, for the beginning of the message.
    """

    def __init__(self, *settings: str, says: str, of: str = "") -> None:
        self._settings = settings
        self._says = says
        self._of = of
        super().__init__(of + self.under({}))

    def __reduce__(self) -> tuple[Any, ...]:
        # A process of a pool sends it to its parent.
        return partial(SettingError, *self._settings, says=self._says, of=self._of), ()

    def under(self, names: Mapping[str, str]) -> str:
        """Return the message with other names of the settings, such as those of options."""
        return " and ".join([names.get(setting, setting) for setting in self._settings]) + self._says


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRules:
    """The limits and the goal of one API, checked on construction.

    Attributes:
        name: the API.
        goal_s: latency goal in seconds; a request's deadline is its arrival plus this.
        max_batch_rows: most rows in one batch of several requests. A larger request runs alone.
        max_batch_bytes: most bytes of bodies in one batch of several requests.
        policy: name of the policy, see :func:`uncork_dispatcher.policies.make_policy`.
        max_hold_s: longest time that a policy may hold a request while a worker is idle.
        timeout_s: seconds that a batch may run before it is abandoned, and that requests wait while there are
            no workers.
        idempotent: whether requests whose worker was lost may run again: once in the same batch, once alone.
        max_queue_rows: rows that may be queued; requests beyond are shed.
        max_queue_requests: requests that may be queued; it matters where their cost is small.
        max_queue_bytes: bytes of bodies that may be queued; requests beyond are shed.
        allowed_lengths: the only lengths to which the model pads its batches, in rising order: a row counts
            as long as the next of them, a longer one as the last. Empty: any length.
        allowed_batch_sizes: the only numbers of rows to which the model pads its batches, in rising order. It
            only matters for requests with costs. Empty: any number.
        fair: whether flows of requests share each queue of the API equally, see
            :class:`uncork_dispatcher.requests.fair_queue.FairQueue`.

    Raises:
        SettingError: if a limit is not positive or the policy is unknown.
    """

    name: str
    goal_s: float = 0.3
    max_batch_rows: int = 1000
    max_batch_bytes: int = 64 * 2**20
    policy: str = "cork"
    max_hold_s: float = math.inf
    timeout_s: float = 60.0
    idempotent: bool = True
    max_queue_rows: int = 20_000
    max_queue_requests: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    allowed_lengths: tuple[float, ...] = ()
    allowed_batch_sizes: tuple[int, ...] = ()
    fair: bool = False

    def __post_init__(self) -> None:
        for field in (
            "goal_s",
            "max_batch_rows",
            "max_batch_bytes",
            "timeout_s",
            "max_queue_rows",
            "max_queue_requests",
            "max_queue_bytes",
        ):
            value = getattr(self, field)
            if not value > 0:
                raise SettingError(field, says=f" must be positive, got {value}", of=f"API {self.name!r}: ")
        for field in ("allowed_lengths", "allowed_batch_sizes"):
            values = getattr(self, field)
            if list(values) != sorted(set(values)) or not min(values, default=1) > 0:
                says = f" must be positive and in rising order, got {values}"
                raise SettingError(field, says=says, of=f"API {self.name!r}: ")
        if not self.max_hold_s >= 0:
            says = f" must be 0 or more, got {self.max_hold_s}"
            raise SettingError("max_hold_s", says=says, of=f"API {self.name!r}: ")
        try:
            make_policy(self.policy, limit_rows=self.max_batch_rows)
        except ValueError as error:
            raise SettingError("policy", says=f": {error}", of=f"API {self.name!r}: ") from None
