"""The objects that every injector uses."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from random import Random

from benchmarks.chaos.gateway import Gateway
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.load import Load

TIMEOUT_S = 2.0
"""Time limit of a batch, as set by the service."""
MAX_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The gateway, the load on it, and the ledger."""

    gateway: Gateway
    ledger: Ledger
    load: Load
    numbers: "count[int]"
    """Numbers of requests."""


Injector = Callable[[Stage, Random], Awaitable[None]]
"""Strikes once; returns when the gateway has recovered."""
