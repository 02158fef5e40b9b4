"""The identity of a worker that connects over TCP."""

from __future__ import annotations

from dataclasses import dataclass

from uncork_workers.wire.messages import Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The gateway's knowledge of a worker on TCP before its first frame.

    Attributes:
        launch: the supervisor's launch that the worker has proved to be; None if another program started it.
        instance: identifies the process, also across reconnections.
        index: the index that the gateway has offered; None for a launched worker, which has its launch's.
    """

    launch: int | None
    instance: str
    index: int | None

    def is_same_process(self, other: Identity) -> bool:
        return (self.launch, self.instance) == (other.launch, other.instance)

    def objection(self, hello: Hello) -> str:
        """Return why a worker's description contradicts its identity; empty if it does not."""
        if hello.launch != self.launch:
            return f"it claims to be {_launch(hello.launch)}, but connected as {_launch(self.launch)}"
        if self.index not in (None, hello.index):
            return f"it claims index {hello.index}, but was given {self.index}"
        return ""


def _launch(launch: int | None) -> str:
    return "no launch of the gateway" if launch is None else f"launch {launch} of the gateway"
