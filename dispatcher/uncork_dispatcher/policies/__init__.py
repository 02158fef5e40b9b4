"""The policies: one file each, which registers its class. Files are found by their folder."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from uncork_dispatcher.policies.base import REGISTERED, Policy

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

POLICIES = tuple(sorted(REGISTERED, key=lambda name: (REGISTERED[name].rank, name)))
POLICY_USAGE = "; ".join([", ".join(POLICIES), *filter(None, [REGISTERED[name].usage for name in POLICIES])])
"""The names of all policies, and the forms with arguments: for help texts and errors."""


def make_policy(name: str, *, limit_rows: int) -> Policy:
    """Build a policy for batches of at most ``limit_rows`` rows.

    ``name`` is a registered name; arguments follow it behind colons (``fixed:25:16``).

    Raises:
        ValueError: if there is no such policy, or its arguments are wrong; the message lists the valid ones.
    """
    kind, *arguments = name.split(":")
    policy = REGISTERED.get(kind)
    if policy is None:
        raise ValueError(f"unknown policy {name!r}; available: {POLICY_USAGE}")
    made = policy.from_arguments(arguments, limit_rows=limit_rows)
    if made is None:
        raise ValueError(f"wrong arguments of policy {name!r}; {policy.usage or f'{kind} takes none'}")
    return made
