"""The faults, and what a request may be answered because of each."""

from dataclasses import dataclass

_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that is done to the gateway, its workers or its clients.

    Attributes:
        says: what it is, for people.
        every_s: mean seconds between two strikes; 0 if it strikes once, at the end.
        own: statuses for the requests that are the fault themselves; empty if it has none.
        others: statuses that anybody may get, beside the right answer, while it lasts.
        fatal: whether a worker dies of it. A batch that lost two workers gets 502, whoever is in it.
        may_close: whether its own requests may be left without an answer.
    """

    name: str
    says: str
    every_s: float
    own: frozenset[int] = _NONE
    others: frozenset[int] = _NONE
    fatal: bool = False
    may_close: bool = False


KILL = Fault(name="kill", says="SIGKILL of a worker", every_s=2.5, others=frozenset({503}), fatal=True)
STOP = Fault(name="stop", says="SIGSTOP of a worker", every_s=20, others=frozenset({503, 504}), fatal=True)
POISON = Fault(name="poison", says="a row that makes the handler raise", every_s=0.7, own=frozenset({500}))
KILLER = Fault(
    name="killer",
    says="a row that kills the worker that runs it",
    every_s=8,
    own=frozenset({502}),
    others=frozenset({503}),
    fatal=True,
)
LEAVE = Fault(
    name="leave",
    says="100 clients close at once, with requests held, running or half sent",
    every_s=4,
    own=frozenset({200}),
    may_close=True,
)
SLOW = Fault(
    name="slow",
    says="clients that send byte by byte, stop in the middle, or do not read what they asked for",
    every_s=4,
    own=frozenset({200}),
)
MALFORMED = Fault(name="malformed", says="malformed HTTP and JSON", every_s=0.5, own=frozenset({400}))
OVERSIZED = Fault(name="oversized", says="bodies over the limit", every_s=1.5, own=frozenset({413}))
OVERLOAD = Fault(name="overload", says="4 times the rate for 5 s", every_s=40, others=frozenset({503}))
RELOAD = Fault(name="reload", says="new workers take over (SIGHUP, uncork reload)", every_s=15)
DRAIN = Fault(name="drain", says="SIGTERM under load, at the end", every_s=0, others=frozenset({503}))

FAULTS = {
    fault.name: fault
    for fault in (KILL, STOP, POISON, KILLER, LEAVE, SLOW, MALFORMED, OVERSIZED, OVERLOAD, RELOAD, DRAIN)
}


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read names with commas between them.

    Raises:
        ValueError: if there is no fault of a name; the message says which there are.
    """
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise ValueError(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    return tuple(fault for name, fault in FAULTS.items() if name in names)
