"""The policy `cork` without each of its mechanisms: small subclasses that `benchmarks/ablation.py` runs."""

from __future__ import annotations

import math
from collections.abc import Callable

from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.policies.base import Release, View, register
from uncork_dispatcher.policies.cork import CorkPolicy, Wait
from uncork_dispatcher.simulator.cells import Cell

FULL = "cork"
MECHANISMS: dict[str, Callable[[Cell], bool]] = {}
"""By name: whether the mechanism can have an effect in a cell."""


def without(name: str, *, applies: Callable[[Cell], bool]) -> Callable[[type[CorkPolicy]], type[CorkPolicy]]:
    """Register a variant of the policy as ``cork-without-NAME``."""

    def decorate(variant: type[CorkPolicy]) -> type[CorkPolicy]:
        MECHANISMS[name] = applies
        register(variant_of(name), variant)
        return variant

    return decorate


def variant_of(mechanism: str) -> str:
    """Return the name of the policy without a mechanism."""
    return f"{FULL}-without-{mechanism}"


def several(cell: Cell) -> bool:
    return cell.workers > 1


def returning(cell: Cell) -> bool:
    """Whether the dispatcher expects answered clients back."""
    return cell.clients is not None or cell.sources == "pool"


@without("everything", applies=lambda cell: True)
class WithoutEverything(CorkPolicy):
    """Release when free: all queued rows as soon as a worker is idle."""

    def decide(self, view: View) -> Release:
        return Release(self.limit_rows, "idle")


@without("balance", applies=several)
class WithoutBalance(CorkPolicy):
    """Busy workers are not looked at, except for the share."""

    def _best(self, view: View, workers: int, rows: float) -> Wait:
        return super()._best(view._replace(busy_until=(), new_client_rate=0.0), workers, rows)


@without("price", applies=several)
class WithoutPrice(CorkPolicy):
    """Idle time has no price."""

    def _best(self, view: View, workers: int, rows: float) -> Wait:
        certain = view.estimate._replace(spread=0.0)
        return super()._best(view._replace(estimate=certain), workers, rows)


@without("releases", applies=several)
class WithoutReleases(CorkPolicy):
    """A fast worker counts once until a slow one is free, as any other."""

    def _gap(self, view: View, workers: int, own_s: float) -> tuple[float, int]:
        return super()._gap(view._replace(slowdown=1e300), workers, own_s)


@without("ahead", applies=lambda cell: cell.transport_ms > 0)
class WithoutAhead(CorkPolicy):
    """No batch is sent to a worker that runs one; see :func:`benchmarks.ablation.run`."""


@without("turns", applies=returning)
class WithoutTurns(CorkPolicy):
    """The clients of a closed loop never take turns in two groups."""

    plans = False


@without("returns", applies=returning)
class WithoutReturns(CorkPolicy):
    """Nobody is expected back, except for the share."""

    def _best(self, view: View, workers: int, rows: float) -> Wait:
        return super()._best(view._replace(returns=Returns()), workers, rows)


@without("share", applies=several)
class WithoutShare(CorkPolicy):
    """One worker takes everything."""

    def _share(self, view: View, workers: int) -> float:
        return math.inf
