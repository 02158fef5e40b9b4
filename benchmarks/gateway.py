"""Measure the gain of batching: the forest of the digits example under `cork` and under `none`.

Exits with 1 if an answer is wrong, not if a ratio is low. Ratios within one run compare; figures of different
machines or runs do not.

    scripts/bench gateway --rounds 5
"""

import json
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import exit_with, reporting_failures
from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.report import origin, origin_lines, policies_sheet
from benchmarks.harness.rounds import ask_alone
from benchmarks.harness.sheets import output, show
from uncork_dispatcher.wording import plural
from uncork_loadtests.compare import Comparison, compare
from uncork_loadtests.servers import BenchError
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_workers.extras import install_command

_DIGITS = f"{EXAMPLES / 'digits' / 'service.py'}:Digits"
_PATH = "/predict"
_ROWS = 200
_LONE_SECONDS = 2.0
# The goal is above any queueing delay of 256 clients, so that the policy without batches sheds nothing.
_OPTIONS = ("--workers", "2", "--mb-max-latency", "10000")
_PACKAGES = ("uvicorn", "httptools", "uvloop", "msgspec", "numpy", "scikit-learn")


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 4.0,
    connections: Annotated[int, typer.Option(min=1, help="Closed-loop clients.")] = 256,
) -> None:
    """Compare cork with none on the digits example: throughput, and the latency of a lone client."""
    console, progress = output(), Console(stderr=True)
    found: list[Comparison] = []
    with reporting_failures("gateway", progress=progress), progress.status("digits") as status:
        payload = _payload()
        for clients in (connections, 1):
            plan = Plan(
                url="http://service/",
                payload=payload,
                clients=clients,
                seconds=min(seconds, _LONE_SECONDS) if clients == 1 else seconds,
            )
            found.append(
                compare(
                    _DIGITS,
                    ("none", "cork"),
                    plan,
                    rounds=rounds,
                    path=_PATH,
                    options=_OPTIONS,
                    tell=status.update,
                )
            )
            # Now, so that a failure of the next one does not lose these figures.
            title = f"digits, 2 workers, {plural(clients, 'closed-loop client')}"
            show(policies_sheet(found[-1], title=title), console=console)
    for line in origin_lines(origin("scripts/bench gateway", packages=_PACKAGES)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    exit_with([fault for each in found for fault in each.faults], progress=progress)


def _payload() -> Payload:
    """Return images, each with the answer to it alone.

    Raises:
        BenchError: if scikit-learn is not installed, or all answers are equal.
    """
    bodies = digits_rows()
    with our_service(_DIGITS, options=_OPTIONS) as server:
        answers = tuple(ask_alone(server, path=_PATH, bodies=bodies))
    if len(set(answers)) < 2:
        raise BenchError("digits: all answers are equal, so the comparison proves nothing")
    return Payload(bodies=bodies, expected=answers)


def digits_rows() -> tuple[bytes, ...]:
    """Return images as the bodies of requests.

    Raises:
        BenchError: if scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise BenchError(f"digits requires scikit-learn; run {install_command('examples')}") from error
    rows = load_digits().data[:_ROWS]
    return tuple(json.dumps(row.tolist(), separators=(",", ":")).encode() for row in rows)
