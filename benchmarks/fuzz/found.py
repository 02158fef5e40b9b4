"""What a fuzzer has found."""

from collections import Counter
from dataclasses import dataclass, field

HANDLER_FAILED = "the handler of API"
"""Begins the error of a request whose handler raised, as handlers may."""


@dataclass(kw_only=True)
class Found:
    """The result for one example; over HTTP, a connection closed without an answer counts as status 0."""

    statuses: Counter[int | str] = field(default_factory=Counter)
    neighbours: int = 0
    faults: list[str] = field(default_factory=list)
