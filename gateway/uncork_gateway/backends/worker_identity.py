"""Which worker is at the other end of a TCP connection."""

from __future__ import annotations

from dataclasses import dataclass

from uncork_workers.wire.messages import Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the gateway knows about a worker on TCP before its first frame.

    Attributes:
        launch: which launch of the supervisor it has proved to be; None if something else started it.
        instance: identifies the process, also when it connects again.
        index: the index that it was offered; None if it was launched, and has the index of its launch.
    """

    launch: int | None
    instance: str
    index: int | None

    def is_same_process(self, other: Identity) -> bool:
        return (self.launch, self.instance) == (other.launch, other.instance)

    def objection(self, hello: Hello) -> str:
        """Return what is wrong with the description of the worker; empty if nothing is."""
        if hello.launch != self.launch:
            return f"it claims to be {_launch(hello.launch)}, but connected as {_launch(self.launch)}"
        if self.index not in (None, hello.index):
            return f"it claims index {hello.index}, but was given {self.index}"
        return ""


def _launch(launch: int | None) -> str:
    return "no launch of the gateway" if launch is None else f"launch {launch} of the gateway"
