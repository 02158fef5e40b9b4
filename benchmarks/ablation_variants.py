"""The policy `cork` without each of its mechanisms: small subclasses that `benchmarks/ablation.py` runs."""

from __future__ import annotations

import math
from collections.abc import Callable

from uncork_dispatcher.policies.base import Release, View, register
from uncork_dispatcher.policies.cork import NO_WAIT, CorkPolicy, Horizons, Load, Wait
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


def one(cell: Cell) -> bool:
    return cell.workers == 1


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
    def _for_balance(self, view: View, load: Load, horizons: Horizons) -> Wait:
        return NO_WAIT


@without("price", applies=several)
class WithoutPrice(CorkPolicy):
    """Idle time has no price."""

    def _for_balance(self, view: View, load: Load, horizons: Horizons) -> Wait:
        certain = view.estimate._replace(spread=0.0)
        return super()._for_balance(view._replace(estimate=certain), load, horizons)


@without("scarce", applies=several)
class WithoutScarce(CorkPolicy):
    """Balance holds as long as there is any capacity left."""

    scarce_rho = 1.0


@without("enough", applies=several)
class WithoutEnough(CorkPolicy):
    """Balance holds queues of any length."""

    enough = math.inf


@without("requests", applies=lambda cell: several(cell) and cell.rows is not None)
class WithoutRequests(CorkPolicy):
    """Balance compares rows only, however many requests are queued."""

    def _for_balance(self, view: View, load: Load, horizons: Horizons) -> Wait:
        return super()._for_balance(view._replace(mean_rows=0.0), load, horizons)


@without("releases", applies=several)
class WithoutReleases(CorkPolicy):
    """A fast worker counts once until a slow one is free, as any other."""

    def _busy_horizons(self, view: View) -> Horizons:
        return super()._busy_horizons(view._replace(slowdown=1.0))


@without("speeds", applies=several)
class WithoutSpeeds(CorkPolicy):
    """All workers count as average; see :func:`benchmarks.ablation.run`."""


@without("ahead", applies=lambda cell: cell.transport_ms > 0)
class WithoutAhead(CorkPolicy):
    """No batch is sent to a worker that runs one; see :func:`benchmarks.ablation.run`."""


@without("turns", applies=returning)
class WithoutTurns(CorkPolicy):
    """The clients of a closed loop never take turns in two groups."""

    plans = False


@without("returns", applies=returning)
class WithoutReturns(CorkPolicy):
    def _for_returns(self, view: View, load: Load, horizons: Horizons) -> Wait:
        return NO_WAIT


@without("trickle", applies=lambda cell: returning(cell) and several(cell))
class WithoutTrickle(CorkPolicy):
    """Holds for complete groups only, not for clients that trickle in within half of the gap."""

    trickle_rho = 0.0


@without("others", applies=lambda cell: returning(cell) and several(cell))
class WithoutOthers(CorkPolicy):
    """Holds for returning clients even if the other idle workers could take their share."""

    def _for_returns(self, view: View, load: Load, horizons: Horizons) -> Wait:
        return super()._for_returns(view._replace(idle_workers=1), load, horizons)


@without("hold", applies=returning)
class WithoutHold(CorkPolicy):
    """Expects every hold to last to its end."""

    def _mean_hold(self, delay_s: float, expected: float) -> float:
        return delay_s


@without("merge", applies=lambda cell: returning(cell) and one(cell))
class WithoutMerge(CorkPolicy):
    """Groups of clients that alternate stay apart."""

    def _pays_up_to(
        self, view: View, load: Load, delay_s: float, gap: float, independent_rate: float
    ) -> float:
        never = view.estimate._replace(intercept_s=0.0)
        return super()._pays_up_to(view._replace(estimate=never), load, delay_s, gap, independent_rate)


@without("independent", applies=lambda cell: returning(cell) and one(cell))
class WithoutIndependent(CorkPolicy):
    """One worker counts every row expected, as several do."""

    def _independent_rate(self, view: View) -> float:
        return 0.0


@without("variation", applies=lambda cell: returning(cell) and one(cell))
class WithoutVariation(CorkPolicy):
    """One worker takes the whole rate for independent, however regularly clients return."""

    def _independent_rate(self, view: View) -> float:
        return view.load_rate


@without("share", applies=several)
class WithoutShare(CorkPolicy):
    def _share(self, view: View, load: Load) -> float:
        return math.inf


@without("return-probability", applies=lambda cell: returning(cell) and several(cell))
class WithoutReturnProbability(CorkPolicy):
    """Shares are dealt as if the clients of running batches did not return."""

    def _share(self, view: View, load: Load) -> float:
        return super()._share(view._replace(running_rows=(0.0,) * len(view.running_rows)), load)


@without("goal", applies=several)
class WithoutGoal(CorkPolicy):
    """A goal that is about to bind is not used to the last moment; deadlines still end holds."""

    def _goal_is_binding(self, view: View, load: Load) -> bool:
        return False
