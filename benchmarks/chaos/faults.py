"""The faults, the statuses that each allows, and the plan of their strikes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SETTLE_S = 6.0
"""No strikes for this long before the end of the load, so that a stopped worker is replaced under load."""
_START_S = 1.0
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of the gateway's workers or clients.

    Attributes:
        says: a description.
        every_s: mean seconds between strikes; 0 if it strikes once, at the end.
        own: allowed statuses of the requests that are the fault.
        others: statuses that any request may get, besides the right answer, while the fault lasts.
        fatal: how many workers a request can lose by it. One that lost three gets 502.
        may_close: whether its own requests may stay without an answer.
    """

    name: str
    says: str
    every_s: float
    own: frozenset[int] = _NONE
    others: frozenset[int] = _NONE
    fatal: int = 0
    may_close: bool = False


KILL = Fault(name="kill", says="SIGKILL of a worker", every_s=2.5, others=frozenset({503}), fatal=1)
STOP = Fault(name="stop", says="SIGSTOP of a worker", every_s=20, others=frozenset({503, 504}), fatal=1)
POISON = Fault(name="poison", says="a row that makes the handler raise", every_s=0.7, own=frozenset({500}))
KILLER = Fault(
    name="killer",
    says="a row that kills the worker that runs it",
    every_s=8,
    own=frozenset({502}),
    others=frozenset({503}),
    fatal=2,  # its batch runs twice; the others of the batch then run without it
)
LEAVE = Fault(
    name="leave",
    says="100 clients close at once, with requests queued, running or half sent",
    every_s=4,
    own=frozenset({200}),
    may_close=True,
)
SLOW = Fault(
    name="slow",
    says="clients that send byte by byte, stop in the middle, or do not read their answers",
    every_s=4,
    own=frozenset({200}),
)
MALFORMED = Fault(name="malformed", says="malformed HTTP and JSON", every_s=0.5, own=frozenset({400}))
OVERSIZED = Fault(name="oversized", says="bodies over the limit", every_s=1.5, own=frozenset({413}))
CANCEL = Fault(
    name="cancel",
    says="50 gRPC calls cancelled, or left with their connections, some in the middle of a message",
    every_s=4,
    own=frozenset({200}),
    may_close=True,
)
TIMEOUT = Fault(
    name="timeout",
    says="gRPC calls with a grpc-timeout of up to 300 ms",
    every_s=3,
    own=frozenset({200, 503, 504}),
)
SHUT = Fault(
    name="shut",
    says="gRPC clients that keep their windows shut, or do not read, for 3 s",
    every_s=4,
    own=frozenset({200}),
)
FRAMES = Fault(
    name="frames",
    says="broken HTTP/2 frames and gRPC messages, and messages over the limit",
    every_s=0.7,
    own=frozenset({200}),
    may_close=True,
)
OVERLOAD = Fault(name="overload", says="4 times the rate for 5 s", every_s=40, others=frozenset({503}))
RELOAD = Fault(name="reload", says="new workers take over (SIGHUP, uncork reload)", every_s=15)
SERVICES = Fault(
    name="services",
    says="another service is added, replaced, scaled, changed and removed; one file in between is invalid",
    every_s=30,
)
HOST = Fault(
    name="host", says="SIGKILL of all workers of a host", every_s=15, others=frozenset({503}), fatal=1
)
PARTITION = Fault(
    name="partition",
    says="a host is cut off without an error, for 3 to 15 s",
    every_s=60,
    others=frozenset({503, 504}),  # the gateway gives up batches that exceed their time limit
    fatal=1,
)
DRAIN = Fault(name="drain", says="SIGTERM under load, at the end", every_s=0, others=frozenset({503}))

FAULTS = {
    fault.name: fault
    for fault in (
        *(KILL, STOP, POISON, KILLER, LEAVE, SLOW, MALFORMED, OVERSIZED, CANCEL, TIMEOUT, SHUT, FRAMES),
        *(OVERLOAD, RELOAD, SERVICES, HOST, PARTITION, DRAIN),
    )
}
"""All faults, by name."""
OF_LOCAL_WORKERS = frozenset({"stop", "reload", "services"})
"""Faults whose cure is the gateway's supervisor."""
OF_HOSTS = frozenset({"host", "partition"})
"""Faults that need workers on hosts."""


def possible_faults(*, on_hosts: bool) -> dict[str, Fault]:
    """Return the faults that can strike workers on hosts, or those on this machine."""
    impossible = OF_LOCAL_WORKERS if on_hosts else OF_HOSTS
    return {name: fault for name, fault in FAULTS.items() if name not in impossible}


class Strike(NamedTuple):
    """One injection; its seed decides the details."""

    at_s: float
    fault: Fault
    seed: int


def plan_strikes(faults: Sequence[Fault], *, seconds: float, seed: int) -> list[Strike]:
    """Return all strikes within ``seconds`` in order; each recurring fault strikes at least once.

    The times of a fault depend on the seed, not on the other faults.
    """
    strikes = [
        Strike(at_s, fault, details)
        for fault in faults
        if fault.every_s
        for at_s, details in _strikes_of(fault, seconds=seconds, seed=seed)
    ]
    return sorted(strikes, key=lambda strike: strike.at_s)


def _strikes_of(fault: Fault, *, seconds: float, seed: int) -> Iterator[tuple[float, int]]:
    random = Random(f"{seed} {fault.name}")
    last_s = max(_START_S, seconds - SETTLE_S)
    at_s = _START_S + random.random() * min(fault.every_s, last_s - _START_S)
    while at_s <= last_s:
        yield at_s, random.getrandbits(32)
        at_s += fault.every_s * random.uniform(0.5, 1.5)
