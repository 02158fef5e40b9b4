"""The settings of one API, and the error about their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.policies.base import Policy

_ENDED_BY_WORKER_S = 1.0


class SettingError(ValueError):
    """Settings have values that are not accepted. The message is ``of``, the names of the settings, ``says``.

    Args:
        settings: the names of the fields or arguments at fault.
        says: the rest of the message, with the space or colon after the names.
        of: the object with the settings, such as ``"API 'predict': "``.
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
        """Return the message without ``of``, with other names for the settings, such as option names."""
        return " and ".join([names.get(setting, setting) for setting in self._settings]) + self._says


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRules:
    """The limits and the goal of one API, checked on construction.

    Attributes:
        name: the name of the API.
        goal_s: latency goal in seconds; a request's deadline is its arrival plus this.
        max_batch_rows: most rows in one batch of several requests. A larger request runs alone.
        max_batch_bytes: most bytes of bodies in one batch of several requests.
        policy: name of the policy, see :func:`uncork_dispatcher.policies.make_policy`.
        max_hold_s: longest time that a policy may hold a request while a worker is idle.
        timeout_s: seconds that a batch may run before it is abandoned, and that requests wait while there are
            no workers.
        idempotent: if True, requests whose worker was lost run again: once in the same batch, once alone.
        max_queue_rows: most rows queued; further requests are shed.
        max_queue_requests: most requests queued; matters if the costs of requests are below 1.
        max_queue_bytes: most bytes of bodies queued; further requests are shed.
        allowed_lengths: the only lengths to which the model pads its batches, ascending: the length of a row
            is rounded up to the next, or down to the last. Empty: any length.
        allowed_batch_sizes: the only numbers of rows to which the model pads its batches, ascending; matters
            only for requests with costs. Empty: any number.
        bulk_goal_s: latency goal of the second class of requests, *bulk*, in seconds; infinity if no deadline
            refuses them; None if the API has one class.
        workers: how many workers only this API may use, and no others; 0: it shares those that are left.
        concurrency: how many batches of this API each worker may run at once, beside one of the other APIs;
            1: a worker runs one batch, of whichever API. Not with ``workers``.
        predicts: if False, nothing is learned of batch times, because they say nothing about other batches.
        fair: if True, flows of requests share each queue of the API equally, see
            :class:`uncork_dispatcher.requests.fair_queue.FairQueue`.
        unit: what rows are counted in, as any text. If it changes, batch times are learned anew.

    Raises:
        SettingError: if a value is out of range, a list does not ascend, or the policy is unknown.
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
    bulk_goal_s: float | None = None
    workers: int = 0
    concurrency: int = 1
    predicts: bool = True
    fair: bool = False
    unit: str = ""

    def __post_init__(self) -> None:
        for field in (
            "goal_s",
            "max_batch_rows",
            "max_batch_bytes",
            "timeout_s",
            "max_queue_rows",
            "max_queue_requests",
            "max_queue_bytes",
            "concurrency",
        ):
            value = getattr(self, field)
            if not value > 0:
                raise SettingError(field, says=f" must be positive, got {value}", of=f"API {self.name!r}: ")
        for field in ("allowed_lengths", "allowed_batch_sizes"):
            values = getattr(self, field)
            if list(values) != sorted(set(values)) or not min(values, default=1) > 0:
                says = f" must be positive and in rising order, got {values}"
                raise SettingError(field, says=says, of=f"API {self.name!r}: ")
        if self.bulk_goal_s is not None and not self.bulk_goal_s > self.goal_s:
            says = f" must be more than goal_s ({self.goal_s}), got {self.bulk_goal_s}"
            raise SettingError("bulk_goal_s", says=says, of=f"API {self.name!r}: ")
        for field in ("max_hold_s", "workers"):
            if not (value := getattr(self, field)) >= 0:
                says = f" must be 0 or more, got {value}"
                raise SettingError(field, says=says, of=f"API {self.name!r}: ")
        if self.workers and self.concurrency > 1:
            says = f" must be 0 with concurrency {self.concurrency}, got {self.workers}"
            raise SettingError("workers", says=says, of=f"API {self.name!r}: ")
        try:
            self.make_policy()
        except ValueError as error:
            raise SettingError("policy", says=f": {error}", of=f"API {self.name!r}: ") from None

    def make_policy(self) -> Policy:
        return make_policy(self.policy, limit_rows=self.max_batch_rows)

    @property
    def shares_workers(self) -> bool:
        """True if the API shares workers with others: it has no reserved workers and no slots of its own."""
        return not self.workers and self.concurrency == 1

    @property
    def gives_up_after_s(self) -> float:
        """Seconds after which a batch that runs is abandoned with its worker.

        A worker that runs several batches ends those past their timeout itself. It gets a second for that, so
        that the others are not lost with it.
        """
        return self.timeout_s + (_ENDED_BY_WORKER_S if self.concurrency > 1 else 0.0)
