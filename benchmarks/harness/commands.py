"""Command lines of the servers that benchmarks start, without the port, and other load generators."""

import subprocess
import sys
from collections.abc import Mapping, Sequence

from uncork_loadtests.servers import HOST, BenchError, words

_END_SECONDS = 60.0


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


def run_generator(command: Sequence[str], *, seconds: float) -> str:
    """Run a load generator for so many seconds; return its output.

    Raises:
        BenchError: if it fails or does not end.
    """
    limit_s = seconds + _END_SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{command[0]} did not end within {limit_s:g} s") from error
    if done.returncode:
        raise BenchError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
