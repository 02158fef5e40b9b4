"""A gateway that starts with what another has learned, in virtual time: right, or wrong by ten times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from tests.dispatcher.wrapped_core import WrappedCore
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients

SEEDS = range(2)
SERVICES = {
    "by the row": ServiceTime(intercept_s=0.010, slope_s=0.010, noise_cv=0.1),
    "fixed": ServiceTime(intercept_s=0.200, slope_s=0.0005, noise_cv=0.1),
    "both": ServiceTime(intercept_s=0.050, slope_s=0.002, noise_cv=0.3),
}


def run(
    monkeypatch: pytest.MonkeyPatch,
    service: ServiceTime,
    *,
    learned: Sequence[tuple[float, float]] = (),
    workers: int = 1,
    clients: int = 64,
    seed: int = 1,
) -> Run:
    """Run the first seconds of a service that has recalled this."""
    driver = "uncork_dispatcher.simulator.run"
    if not str(import_module(driver).__file__).endswith(".py"):
        pytest.skip("compiled code creates the core without looking its name up")

    def wrap(set_api: Callable[..., Any]) -> Callable[..., Any]:
        def setting(rules: Any) -> None:
            set_api(rules)
            set_api.__self__.recall(rules.name, learned)  # type: ignore[attr-defined]

        return setting

    monkeypatch.setattr(f"{driver}.Dispatcher", lambda: WrappedCore("set_api", wrap))
    return simulate(
        Scenario(
            service=service,
            arrivals=Clients(count=clients),
            workers=workers,
            requests=600,
            goal_s=0.4,
            seed=seed,
        )
    )


def line(service: ServiceTime, factor: float = 1.0) -> list[tuple[float, float]]:
    """What was learned of a service, or of one that is slower by a factor."""
    return [(rows, factor * (service.intercept_s + service.slope_s * rows)) for rows in (1, 64)]


@pytest.mark.parametrize(("workers", "factor"), [(1, 10.0), (2, 0.1)])
@pytest.mark.parametrize("service", SERVICES)
def test_a_wrong_file_costs_no_more_than_a_cold_start(
    monkeypatch: pytest.MonkeyPatch, service: str, workers: int, factor: float
) -> None:
    """Not one response comes later: nothing depends on it before a batch confirms it, and none does."""
    truth = SERVICES[service]
    for seed in SEEDS:
        cold = run(monkeypatch, truth, workers=workers, seed=seed)
        wrong = run(monkeypatch, truth, learned=line(truth, factor), workers=workers, seed=seed)
        assert wrong.answered == cold.answered
