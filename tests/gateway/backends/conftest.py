"""Fixtures of the tests of backends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.backends.pool_stage import Stage, stage
from tests.loops import raise_problems


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    """A pool on a socket, whose workers the test connects."""
    async with stage(tmp_path) as made:
        yield made
    raise_problems()
