"""The services of scripts/bench stages."""

from typing import Any

import pytest

from benchmarks.services.stages import InStages, InTurn
from benchmarks.stages import SETTINGS
from uncork.testing import client


@pytest.mark.parametrize("service", [InStages, InTurn])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_both_services_give_the_response_that_the_load_expects(
    monkeypatch: pytest.MonkeyPatch, service: Any, setting: Any
) -> None:
    for name, value in setting.environment.items():
        monkeypatch.setenv(name, value)

    with client(service) as asking:
        assert asking.post("/predict", json=1.5).json() == 3.0
