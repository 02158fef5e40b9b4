"""A core whose calls a test watches. Classes cannot be patched where they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any

import pytest

from uncork_dispatcher.core import Dispatcher


class WrappedCore:
    """A core of which one method is wrapped by a function."""

    def __init__(self, method: str, wrap: Callable[..., Any]) -> None:
        self._core = Dispatcher()
        self._method = method
        self._wrap = wrap

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._core, name)
        return self._wrap(attribute) if name == self._method else attribute


def note_sources(monkeypatch: pytest.MonkeyPatch, driver: str) -> list[Hashable]:
    """Return a list that gets the source of each request that a driver, a module, submits to its core."""
    seen: list[Hashable] = []

    def wrap(submit: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, source: Hashable, **more: Any) -> Any:
            seen.append(source)
            return submit(*args, source=source, **more)

        return noting

    replace_core(monkeypatch, driver, "submit", wrap)
    return seen


def replace_core(monkeypatch: pytest.MonkeyPatch, driver: str, method: str, wrap: Callable[..., Any]) -> None:
    """Let a driver, a module, create cores of which one method is wrapped."""
    if not str(import_module(driver).__file__).endswith(".py"):
        pytest.skip("compiled code creates the core without looking its name up")
    monkeypatch.setattr(f"{driver}.Dispatcher", lambda: WrappedCore(method, wrap))
