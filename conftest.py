"""Settings and fixtures of all tests."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import RealLoop, raise_problems

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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Fail an async test with what its loop would only have logged."""
    if "anyio_backend" not in pyfuncitem.fixturenames:
        return (yield)
    try:
        return (yield)
    finally:
        raise_problems()
