"""Measure calls over gRPC beside JSON and V2 binary over HTTP, through the whole gateway.

``scripts/bench grpc`` runs it, and prints docs/results/grpc.md with ``--page``. A service returns its input,
an array; one gateway runs it without delay, another with that of a model. All forms are measured in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import reporting_failures
from benchmarks.harness.commands import environment, uncork_serve
from benchmarks.harness.h2load import H2Load, require_h2load
from benchmarks.harness.h2load_rounds import measure_h2load
from benchmarks.harness.marks import Bound, at_most, ratio_interval, ratios
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import Round, interleave
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from benchmarks.scale.call_forms import BINARY, GRPC, JSON, Form, call_forms, check_answer, random_values
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import HOST, Server, reserved_port, serve

ONE, MANY = f"{GRPC}, one connection", f"{GRPC}, a connection each"
_SIZES = {"50 floats": 50, "1 MB": 262_144}
_MODELS: Mapping[str, Mapping[str, object]] = {
    "no delay": {},
    "5 + 0.1 n ms": {"ARRAYS_INTERCEPT_MS": 5, "ARRAYS_SLOPE_MS": 0.1},
}
# Above the delay of any number of callers here, so that nothing is shed.
_OPTIONS: Mapping[str, object] = {"--mb-max-latency": 60_000, "--max-body-bytes": 10_000_000}
_MARKS: Mapping[str, tuple[str, Bound]] = {"50 floats": (JSON, at_most(1.3)), "1 MB": (BINARY, at_most(1.0))}
PAGE = ResultPage(
    title="gRPC compared with HTTP",
    introduction="""
        The gateway's cost per gRPC call, compared with JSON and V2 binary over HTTP.
        [Performance](../explanation/performance.md#grpc) summarizes the results.
    """,
    script="scripts/bench grpc",
    packages=["hpack", "protobuf", "uvloop"],
)
_PARAGRAPHS = [
    """
    The service returns its input, one row of float32 values, from one worker on this machine. `h2load` sends
    the same body over and over, in HTTP/1.1 or HTTP/2, with one thread; each caller waits for its answer
    before it sends the next request. Before the rounds, one answer of each form is compared with its input;
    during them, h2load counts the statuses over HTTP, and the gateway's metrics those over gRPC.
    """,
    """
    Ratios are medians of the rounds, with their 95 % intervals. *Gateway* is the processor time of the
    gateway's process for each call. Over HTTP each caller has a connection. JSON of 1 MB is measured with one
    caller only, because the worker takes long to parse it.
    """,
]


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway, and its gRPC port."""

    server: Server
    grpc_port: int


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The forms to compare under one load."""

    size: str
    model: str
    callers: int

    @property
    def forms(self) -> Sequence[str]:
        """The forms to measure: several callers with 1 MB of JSON keep the worker busy for seconds."""
        return (BINARY, GRPC) if self.size == "1 MB" and self.callers > 1 else (JSON, BINARY, GRPC)

    @property
    def title(self) -> str:
        return f"{self.size}, {self.model}, {plural(self.callers, 'caller')}"


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each form under each load.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 3.0,
    page: Annotated[bool, typer.Option("--page", help="Print the page of docs/results.")] = False,
) -> None:
    """Measure an echo of 50 floats and of 1 MB with 1 to 64 callers, over HTTP and gRPC."""
    progress = Console(stderr=True)
    with reporting_failures("bench-grpc", progress=progress):
        require_h2load()
        with gateways() as running:
            sheets = [
                _sheet(cell, running[cell.model], rounds=rounds, seconds=seconds, progress=progress)
                for cell in _cells()
            ]
    if page:
        print(PAGE.text(paragraphs=_PARAGRAPHS, sheets=sheets), end="")
        return
    for sheet in sheets:
        show(sheet, console=output())


def _cells() -> list[Cell]:
    small = [
        Cell(size="50 floats", model=model, callers=callers) for model in _MODELS for callers in (1, 16, 64)
    ]
    return [*small, *(Cell(size="1 MB", model="no delay", callers=callers) for callers in (1, 16))]


@contextmanager
def gateways() -> Iterator[dict[str, Gateway]]:
    """Run a gateway for each model, with one worker."""
    with ExitStack() as stack:
        found = {}
        for name, variables in _MODELS.items():
            port = stack.enter_context(reserved_port())
            options = {**_OPTIONS, "--workers": 1, "--grpc-port": port}
            command = [*environment(variables), *uncork_serve(f"{SERVICES / 'arrays.py'}:Arrays", options)]
            server = stack.enter_context(serve(f"uncork, {name}", command=command))
            found[name] = Gateway(server=server, grpc_port=port)
        yield found


def _sheet(cell: Cell, gateway: Gateway, *, rounds: int, seconds: float, progress: Console) -> Sheet:
    values = random_values(_SIZES[cell.size])
    forms = {name: form for name, form in call_forms(values).items() if name in cell.forms}
    for name, form in forms.items():
        check_answer(name, form, server=gateway.server, grpc_port=gateway.grpc_port, values=values)
    with tempfile.TemporaryDirectory() as folder:
        loads = _loads(forms, gateway, cell.callers, Path(folder))
        found = interleave(
            loads,
            rounds=rounds,
            measure=lambda name, _: measure_h2load(gateway.server, loads[name], seconds=seconds),
            tell=progress.print,
            title=cell.title,
        )
    base, bound = _MARKS[cell.size]
    rows = [_row(name, each, found[base], cell.callers) for name, each in found.items()]
    notes = [*_verdicts(cell, found, base, bound), *_faults(found)]
    return Sheet(title=cell.title, columns=_columns(base), rows=rows, notes=notes)


def _loads(forms: Mapping[str, Form], gateway: Gateway, callers: int, folder: Path) -> dict[str, H2Load]:
    found = {}
    for number, (name, form) in enumerate(forms.items()):
        body = folder / str(number)
        body.write_bytes(form.sent)
        port = gateway.grpc_port if form.is_grpc else gateway.server.port
        url = f"http://{HOST}:{port}{form.path}"
        load = H2Load(url=url, body=body, headers=form.headers, http1=not form.is_grpc, connections=callers)
        if form.is_grpc:
            found[ONE] = replace(load, connections=1, calls=callers)
            if callers > 1:
                found[MANY] = load
        else:
            found[name] = load
    return found


def _columns(base: str) -> list[str]:
    ratios = [f"{figure} / {base}" for figure in ("calls/s", "gateway")]
    return ["form", "calls/s", ratios[0], "mean ms", "gateway µs", ratios[1], "rows/batch"]


def _row(name: str, rounds: Sequence[Round], base: Sequence[Round], callers: int) -> list[str]:
    rates, cpu = [one.requests_per_second for one in rounds], [one.front_cpu for one in rounds]
    return [
        name,
        text(median_known(rates), digits=0),
        interval_text(ratio_interval(rates, by=[one.requests_per_second for one in base])),
        text(median_known(callers / rate for rate in rates if rate), digits=2, scale=1000),
        text(median_known(cpu), digits=0, scale=1000),
        interval_text(ratio_interval(cpu, by=[one.front_cpu for one in base])),
        text(median_known(one.rows_per_batch for one in rounds), digits=1),
    ]


def _verdicts(cell: Cell, found: Mapping[str, Sequence[Round]], base: str, bound: Bound) -> list[str]:
    """Judge the processor time; small calls with 64 callers, large ones with any number."""
    if cell.size == "50 floats" and cell.callers != 64:
        return []
    by = [one.front_cpu for one in found[base]]
    states = {
        name: bound.state(ratios([one.front_cpu for one in found[name]], by=by))
        for name in (ONE, MANY)
        if name in found
    }
    return [f"{name}: gateway / {base} {bound}: {state}" for name, state in states.items()]


def _faults(found: Mapping[str, Sequence[Round]]) -> list[str]:
    return [
        f"{name}, round {number}: {what}"
        for name, rounds in found.items()
        for number, one in enumerate(rounds, 1)
        for what in (one.fault, one.void)
        if what
    ]


if __name__ == "__main__":
    typer.run(main)
