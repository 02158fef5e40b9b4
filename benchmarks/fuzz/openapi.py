"""Test the examples against their OpenAPI documents, with valid and invalid requests.

schemathesis makes the requests and checks the answers, in the environment that ``scripts/fuzz openapi``
makes.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from benchmarks.chaos.gateway import BUG
from benchmarks.harness.cli import choose, exit_with, reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.metrics import read_metrics
from benchmarks.harness.paths import CACHE, EXAMPLES, ROOT
from benchmarks.harness.sheets import Sheet, output, show
from uncork_loadtests.servers import Server, serve

_CONFIG = ROOT / "tests" / "fuzz" / "schemathesis.toml"
_SCHEMATHESIS = CACHE / "schemathesis" / "bin" / "schemathesis"
# A longer run hangs.
_BOUND_S = 60.0
_BOUND_PER_EXAMPLE_S = 1.0
_TARGETS = {
    "digits": "digits/service.py:Digits",
    "wine": "wine/service.py:Wine",
    "thumbnails": "thumbnails/service.py:Thumbnails",
    "cortex_style": "cortex_style/service.py:Sentiment",
    "story": "story/service.py:Story",
}


class Trial(NamedTuple):
    """The result for one example: answers by status, and faults."""

    statuses: Counter[str]
    seconds: float
    faults: Sequence[str]


def main(
    examples: Annotated[int, typer.Option(min=1, help="Most generated requests per API.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the requests.")] = 1,
    services: Annotated[str, typer.Option(help="Services to test, separated by commas.")] = ",".join(
        _TARGETS
    ),
) -> None:
    """Test the examples against their OpenAPI documents; exit with 1 if an answer violates its document."""
    names = choose(services, list(_TARGETS), what="service")
    progress = Console(stderr=True)
    rows, faults = [], []
    with reporting_failures("fuzz openapi", progress=progress):
        for name in names:
            with progress.status(name):
                trial = _try(name, examples=examples, seed=seed)
            rows.append(_row(name, trial))
            again = f"scripts/fuzz openapi --services {name} --seed {seed} --examples {examples}"
            faults += [f"{name} (again: {again}): {fault}" for fault in trial.faults]
    columns = ["example", "requests", "answers by status", "seconds", "faults"]
    show(Sheet(title=f"OpenAPI, seed {seed}", columns=columns, rows=rows), console=output())
    exit_with(faults, progress=progress)


def _try(name: str, *, examples: int, seed: int) -> Trial:
    """Serve an example and run schemathesis against it."""
    began = time.monotonic()
    with serve(name, command=uncork_serve(EXAMPLES / _TARGETS[name])) as server:
        faults = _ask(server, examples=examples, seed=seed)
        if (ended := server.exit_code()) is not None:
            return Trial(Counter(), time.monotonic() - began, [*faults, f"the gateway ended with {ended}"])
        statuses = read_statuses(read_metrics(server))
        log = server.written().splitlines()
    faults += [f"the log says: {line}" for line in log if BUG.search(line)]
    if not statuses["200"]:
        faults.append("no request was answered with 200")
    return Trial(statuses, time.monotonic() - began, faults)


def _ask(server: Server, *, examples: int, seed: int) -> list[str]:
    """Run schemathesis; return its findings."""
    command = [
        *(str(_SCHEMATHESIS), "--config-file", str(_CONFIG), "run", server.url("/openapi.json")),
        *("--seed", str(seed), "--max-examples", str(examples)),
    ]
    bound_s = _BOUND_S + _BOUND_PER_EXAMPLE_S * examples
    try:
        done = subprocess.run(
            command, cwd=_CONFIG.parent, capture_output=True, text=True, timeout=bound_s, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"not done within {bound_s:g} s"]
    return [done.stdout + done.stderr] if done.returncode else []


def read_statuses(metrics: str) -> Counter[str]:
    """Return the answers by status, from metrics in Prometheus' text format."""
    statuses: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "uncork_requests_total":
                statuses[sample.labels["status"]] += int(sample.value)
    return statuses


def _row(name: str, trial: Trial) -> list[str]:
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(trial.statuses.items()))
    return [
        name,
        f"{trial.statuses.total():,}",
        statuses,
        f"{trial.seconds:.0f}",
        f"{len(trial.faults):,}",
    ]


if __name__ == "__main__":
    typer.run(main)
