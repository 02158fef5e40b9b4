"""Worker processes that are ready to take over from others."""

from collections.abc import Callable, Collection

from uncork_workers.supervision.launcher import Starter, WorkerProcess

TakeOver = Callable[[Collection[int]], Collection[int]]
"""Switches to the processes of these launches from those with the same indexes. Returns the launches of old
processes that exit by themselves when idle; raises ValueError if it cannot switch."""


class ReplacementFailed(Exception):
    """The new workers could not take over, so the old ones stay. The message says why."""


class Standbys:
    """Processes that are ready to take over from workers.

    Attributes:
        start: has started them.
        in_force: whether they have taken over.
    """

    def __init__(
        self,
        put_in_force: Callable[["Standbys", Collection[int]], None],
        take_over: TakeOver,
        start: Starter,
    ) -> None:
        self._put_in_force = put_in_force
        self._take_over = take_over
        self.start = start
        self.processes: list[WorkerProcess] = []
        self.in_force = False

    @property
    def launches(self) -> list[int]:
        return [process.launch for process in self.processes]

    def take_over(self, take_over: TakeOver | None = None) -> None:
        """Take over, by default as the supervisor was told.

        Raises:
            ValueError: if that is impossible.
        """
        leaving = (take_over or self._take_over)(self.launches)
        self.in_force = True
        self._put_in_force(self, leaving)
