"""Settings and fixtures of all tests."""

from typing import Any

import pytest
from hypothesis import settings

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import RealLoop

# Tests assert no times, and any example may take long on a busy machine.
settings.register_profile("uncork", deadline=None)
# For a quick look: pytest --hypothesis-profile quick
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("uncork")


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run async tests on a checked loop; modules marked `virtual_time` on one with a virtual clock."""
    marked = request.node.get_closest_marker("virtual_time")
    return "asyncio", {"loop_factory": VirtualLoop if marked else RealLoop}
