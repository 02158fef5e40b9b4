"""The right to have one batch outstanding, as the status pages show it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendSlot:
    """A worker, a call that a server runs or may run, or a server that is not healthy.

    Attributes:
        state: of a worker, such as ``starting``; else ``idle``, ``busy`` or ``lost``.
        host: the worker's machine; empty for the gateway's own.
        number: its number in the dispatcher; None if it cannot run batches.
        fault: describes it while it runs no batch.
    """

    index: int
    state: str
    number: int | None = None
    pid: int | None = None
    host: str = ""
    url: str | None = None
    fault: str = ""
