"""The policies by name."""

from __future__ import annotations

import re

from uncork_dispatcher.policies.aimd import AimdPolicy
from uncork_dispatcher.policies.base import Policy
from uncork_dispatcher.policies.cork import CorkPolicy
from uncork_dispatcher.policies.cork_classic import CorkClassicPolicy
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.policies.none import NonePolicy

POLICIES = ("cork", "cork-classic", "fixed", "aimd", "none")
_DEFAULT_WAIT_MS = 10.0
_FIXED = re.compile(r"fixed(:(?P<wait_ms>[0-9]+(\.[0-9]+)?)(:(?P<rows>0*[1-9][0-9]*))?)?")


def make_policy(name: str, *, limit_rows: int) -> Policy:
    """Build the policy called ``name`` for batches of at most ``limit_rows`` rows.

    ``fixed`` takes its wait in milliseconds behind a colon (``fixed:25``), 10 if none is given, and behind
    another one the rows that are enough (``fixed:25:16``), never more than ``limit_rows``.

    Raises:
        ValueError: if there is no such policy; the message lists those there are.
    """
    if name == "cork":
        return CorkPolicy(limit_rows=limit_rows)
    if name == "cork-classic":
        return CorkClassicPolicy(limit_rows=limit_rows)
    if name == "aimd":
        return AimdPolicy(limit_rows=limit_rows)
    if name == "none":
        return NonePolicy()
    if fixed := _FIXED.fullmatch(name):
        wait_ms = float(fixed["wait_ms"] or _DEFAULT_WAIT_MS)
        rows = int(fixed["rows"] or limit_rows)
        return FixedPolicy(limit_rows=min(rows, limit_rows), wait_s=wait_ms / 1000)
    raise ValueError(
        f"there is no policy {name!r}; there are {', '.join(POLICIES)} "
        "(and fixed:MS or fixed:MS:ROWS, the wait in ms and the rows that are enough)"
    )
