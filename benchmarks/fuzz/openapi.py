"""Ask each example what its OpenAPI document allows and what not; answers must be as the document says.

schemathesis makes the requests and judges the answers. It has an environment of its own, which
``scripts/fuzz-openapi`` makes.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from benchmarks.chaos.gateway import TROUBLE
from benchmarks.harness.paths import CACHE, ROOT
from benchmarks.harness.sheets import Sheet, output, show
from uncork_loadtests.endings import exit_with, telling_failures
from uncork_loadtests.servers import Server, serve

_CONFIG = ROOT / "tests" / "fuzz" / "schemathesis.toml"
_SCHEMATHESIS = CACHE / "schemathesis" / "bin" / "schemathesis"
# One that takes longer hangs.
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
    """What came of one example: answers of its apis by status, and what was wrong."""

    statuses: Counter[str]
    seconds: float
    faults: Sequence[str]


def main(
    examples: Annotated[int, typer.Option(min=1, help="Most made-up requests for each api.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is made up.")] = 1,
    services: Annotated[str, typer.Option(help="Services to ask, with commas between.")] = ",".join(_TARGETS),
) -> None:
    """Ask the examples by their OpenAPI documents; exit with 1 if an answer is not as its document says."""
    names = [name.strip() for name in services.split(",")]
    if unknown := [name for name in names if name not in _TARGETS]:
        raise typer.BadParameter(f"there is no service {unknown[0]!r}; there are {', '.join(_TARGETS)}")
    progress = Console(stderr=True)
    rows, faults = [], []
    with telling_failures("fuzz-openapi", progress=progress):
        for name in names:
            with progress.status(name):
                trial = _try(name, examples=examples, seed=seed)
            rows.append(_row(name, trial))
            again = f"scripts/fuzz-openapi --services {name} --seed {seed} --examples {examples}"
            faults += [f"{name} (again: {again}): {fault}" for fault in trial.faults]
    columns = ["example", "requests", "answers by status", "seconds", "faults"]
    show(Sheet(title=f"OpenAPI, seed {seed}", columns=columns, rows=rows), console=output())
    exit_with(faults, progress=progress)


def _try(name: str, *, examples: int, seed: int) -> Trial:
    """Serve an example and have schemathesis ask it."""
    target = str(ROOT / "examples" / _TARGETS[name])
    began = time.monotonic()
    with serve(name, command=[sys.executable, "-m", "uncork", "serve", target]) as server:
        faults = _ask(server, examples=examples, seed=seed)
        if (ended := server.exit_code()) is not None:
            return Trial(Counter(), time.monotonic() - began, [*faults, f"the gateway ended with {ended}"])
        statuses = read_statuses(httpx.get(server.url("/metrics")).text)
        log = server.written().splitlines()
    faults += [f"the log says: {line}" for line in log if TROUBLE.search(line)]
    if not statuses["200"]:
        faults.append("nothing that was asked was answered with 200")
    return Trial(statuses, time.monotonic() - began, faults)


def _ask(server: Server, *, examples: int, seed: int) -> list[str]:
    """Run schemathesis; returns what it has found wrong."""
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
    """How many answers of each status a gateway counts, in Prometheus' text format."""
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
