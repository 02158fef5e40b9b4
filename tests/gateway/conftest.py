"""Fixtures of the gateway's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.loops import raise_problems


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[GatewayStage]:
    """A gateway with one service, whose workers the test connects."""
    async with gateway(tmp_path) as made:
        yield made
    raise_problems()
