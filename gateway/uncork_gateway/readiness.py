"""Notifies clients that watch readiness."""

import asyncio
from collections.abc import Callable


class Readiness:
    """Calls its subscribers when a worker, the models or a drain may have changed readiness.

    It calls them in the next turn of the event loop, once for all changes of this turn.
    """

    def __init__(self) -> None:
        self._subscribers: dict[object, Callable[[], object]] = {}
        self._is_scheduled = False

    def subscribe(self, changed: Callable[[], object]) -> Callable[[], object]:
        """Call ``changed`` on each change, until the returned function is called."""
        key = object()
        self._subscribers[key] = changed
        return lambda: self._subscribers.pop(key, None)

    def may_have_changed(self) -> None:
        """Notify the subscribers. Call it inside a running event loop."""
        if self._subscribers and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._is_scheduled = False
        for changed in list(self._subscribers.values()):
            changed()
