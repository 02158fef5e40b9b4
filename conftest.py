"""Settings and fixtures of all tests."""

import asyncio
import atexit
import os
import tempfile
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import RealLoop, raise_problems
from uncork_dispatcher import AsyncDispatcher

# The same examples in every run, so that a change passes or fails for its own reasons. On a busy machine, any
# of them may be slow.
settings.register_profile(
    "uncork", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Other examples in every run, for scripts/nightly; a failure prints how to see it again.
settings.register_profile("fresh", settings.get_profile("uncork"), derandomize=False, print_blob=True)
# For a quick look: pytest --hypothesis-profile quick
settings.register_profile("quick", settings.get_profile("uncork"), max_examples=10)
settings.load_profile("uncork")

# Servers that tests start write nothing into the user's home.
_state = tempfile.TemporaryDirectory(prefix="uncork-tests-state-")
atexit.register(_state.cleanup)
os.environ["XDG_STATE_HOME"] = _state.name


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run async tests on a checked loop; modules marked `virtual_time` on one with a virtual clock."""
    marked = request.node.get_closest_marker("virtual_time")
    return "asyncio", {"loop_factory": VirtualLoop if marked else RealLoop}


@pytest.fixture(autouse=True)
def _clock_of_batched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `batched` the clock of the loop in modules marked `virtual_time`."""
    if request.node.get_closest_marker("virtual_time"):
        on_the_loop = partial(AsyncDispatcher, clock=lambda: asyncio.get_running_loop().time())
        monkeypatch.setattr("uncork.batched_functions.loop_queue.AsyncDispatcher", on_the_loop)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Fail an async test with what its loop would only have logged."""
    if "anyio_backend" not in pyfuncitem.fixturenames:
        return (yield)
    try:
        return (yield)
    finally:
        raise_problems()
