"""Virtual time for functions that are decorated with `batched`; helpers explain their failed assertions."""

import asyncio
from functools import partial
from importlib import import_module

import pytest

from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher

pytest.register_assert_rewrite("tests.dispatcher.core_model", "tests.dispatcher.driver")


@pytest.fixture(autouse=True)
def _clock_of_batched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `batched` the clock of the loop in modules marked `virtual_time`."""
    if request.node.get_closest_marker("virtual_time"):
        on_the_loop = partial(AsyncDispatcher, clock=lambda: asyncio.get_running_loop().time())
        # The package has a function of the module's name.
        monkeypatch.setattr(import_module("uncork_dispatcher.batched"), "AsyncDispatcher", on_the_loop)
