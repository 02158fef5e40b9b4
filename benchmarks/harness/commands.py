"""Command lines of the servers that benchmarks start; all but the port, which `serve` adds."""

import sys
from collections.abc import Mapping

from uncork_loadtests.servers import HOST, words


def environment(variables: Mapping[str, object]) -> list[str]:
    """Return a prefix that sets environment variables."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def uncork_serve(
    target: object | None, options: Mapping[str, object] | None = None, *, python: str = sys.executable
) -> list[str]:
    """Serve a target; without one, the options name a configuration file that has some.

    Each server learns anew.
    """
    targets = [] if target is None else [str(target)]
    return [
        *(python, "-m", "uncork", "serve", *targets, "--host", HOST, "--no-state"),
        *words(options or {}),
    ]
