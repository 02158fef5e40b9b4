"""A slot, as the status pages show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from uncork_workers.wire.messages import Gpu


@dataclass(frozen=True, slots=True)
class BackendSlot:
    """A worker; in a proxy, a call that a server runs or may run, or a server that is not healthy.

    Attributes:
        state: the worker's state, such as ``starting``; in a proxy, ``idle``, ``busy`` or ``lost``.
        host: the worker's machine; empty for the gateway's own.
        number: the slot's key in the dispatcher; None if it cannot run batches.
        fault: a clause that describes the slot while it runs no batch.
        gpus: the GPUs that the worker has reported in the last half minute, by name.
    """

    index: int
    state: str
    number: int | None = None
    pid: int | None = None
    host: str = ""
    url: str | None = None
    fault: str = ""
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
