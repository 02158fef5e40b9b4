"""How a server ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from uncork.server import serving
from uncork.server.server_options import ServerOptions
from uncork.server.servers import Servers
from uncork.server.serving import serve_until_signal
from uncork_gateway.front_end import FrontEnd


class Failing:
    """Servers that fail."""

    async def serve(self) -> None:
        raise RuntimeError("as planned")

    def drain(self) -> None:
        """Their connections have ended already."""

    def exit(self, *, timeout_s: float) -> None:
        """They have ended already."""

    def force_exit(self) -> None:
        """They have ended already."""


class Answered:
    """A front end that has no requests."""

    async def drain(self) -> None:
        """Nothing is left to answer."""


async def test_servers_that_fail_end_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(serving, "_on_signals", lambda reload: (stop, hurry))
    for name in ("_calm_garbage_collector", "keep_freed_memory"):
        monkeypatch.setattr(serving, name, lambda: None)
    closed: list[asyncio.Event] = []

    async def announce() -> None:
        await asyncio.Event().wait()

    async def close(hurry: asyncio.Event) -> None:
        closed.append(hurry)

    with pytest.raises(RuntimeError, match=r"^as planned$"):
        await serve_until_signal(
            cast(FrontEnd, Answered()),
            cast(Servers, Failing()),
            announcing=announce(),
            options=lambda: cast(ServerOptions, SimpleNamespace(drain_timeout=60.0)),
            close=close,
            reload=lambda: None,
        )

    assert closed == [hurry]
