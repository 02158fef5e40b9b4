"""Measure a transformer encoder: batch times, cork against none, and who shares a batch that is padded.

It runs on a GPU if torch finds one, otherwise on the CPU with a smaller model, in the environment with torch
that scripts/bench encoder makes. Texts of different lengths also run in ONNX Runtime, unless the GPU is for
torch only. Prints benchmarks/results/encoder.md. Exits with 1 if a request fails or its answer differs in a
batch.

    scripts/bench encoder --workers 1,2 --rounds 5 --seconds 5
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from benchmarks.harness.cli import exit_with, parse_counts, reporting_failures
from benchmarks.harness.report import ResultPage, policies_sheet
from benchmarks.harness.rounds import Tell
from benchmarks.harness.sheets import Sheet, text
from benchmarks.models.agreement import Agreement, check_agreement
from benchmarks.models.lengths import VOCABULARY, distributions
from benchmarks.models.padded import SERVICE, Cell, measure_cell
from benchmarks.models.padded_tables import cell_sheet, padded_paragraphs
from uncork_dispatcher.wording import plural
from uncork_loadtests.compare import Comparison, compare
from uncork_loadtests.targets import Estimate, aimed, estimate, our_service
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.tuning import batch_times
from uncork_loadtests.tuning.batch_times import BatchTimes, Line

_PATH = "/encode"
_BODIES = 100
# Above any queueing delay, so that the policy without batches sheds nothing.
_GOAL_MS = 600_000.0
# Slower batches are not measured: the line is known by then.
_LONGEST_MS = 2000.0
_WARMUP_S = 1.0
PAGE = ResultPage(
    title="A transformer encoder",
    introduction="""
        The execution time of a transformer encoder by batch size, the gain of `cork` over no batching, and
        the choice of texts of different lengths that share a batch. For conclusions, see
        [benchmarks](../../docs/explanation/benchmarks.md#against-no-batching). On a machine with a GPU, the
        same command measures a larger model on the GPU.
    """,
    script="scripts/bench encoder",
    packages=["torch", "onnxruntime"],
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The served model."""

    layers: int
    width: int
    tokens: int
    """Per request."""

    def bodies(self) -> tuple[bytes, ...]:
        """Return requests with random tokens, always the same."""
        random_ = Random(1)
        rows = [[random_.randrange(VOCABULARY) for _ in range(self.tokens)] for _ in range(_BODIES)]
        return tuple(map(msgspec.json.encode, rows))


ON_GPU = Model(layers=6, width=384, tokens=64)
ON_CPU = Model(layers=2, width=128, tokens=32)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The model, its device, and the load."""

    model: Model
    device: str
    """Its display name."""
    runtimes: Sequence[str]
    """Of the texts of different lengths."""
    options: Sequence[str]
    """Of `uncork serve`, for every server."""
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Times:
    """Batch times of one worker."""

    measured: BatchTimes
    line: Line
    """Through the medians."""
    learned: Estimate | None
    """The gateway's estimate after the same batches, if known."""


def main(
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 1.")] = 4.0,
    clients: Annotated[int, typer.Option(min=2, help="Closed-loop clients.")] = 64,
) -> None:
    """Measure batch times, cork against none, and padded batches, and print benchmarks/results/encoder.md."""
    progress = Console(stderr=True)
    counts = parse_counts(workers)
    setting = _setting(clients=clients, seconds=seconds)
    with reporting_failures("encoder", progress=progress), progress.status("encoder") as status:
        agreement, times = _times(setting, largest=clients, tell=status.update)
        comparisons = {
            count: _compare(setting, workers=count, rounds=rounds, tell=status.update) for count in counts
        }
        cells = _padded(setting, rounds=rounds, tell=status.update)
    typer.echo(_text(setting, agreement, times, comparisons, cells), nl=False)
    faults = [fault for each in comparisons.values() for fault in each.faults]
    exit_with([*faults, *(fault for cell in cells for fault in cell.faults)], progress=progress)


def _setting(*, clients: int, seconds: float) -> Setting:
    """Choose model and device, and set the environment variables of the servers."""
    # Imported here: it is slow, and tables need no torch.
    import onnxruntime
    import torch

    has_gpu = torch.cuda.is_available()
    onnx_has_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    model = ON_GPU if has_gpu else ON_CPU
    os.environ["ENCODER_LAYERS"], os.environ["ENCODER_WIDTH"] = str(model.layers), str(model.width)
    os.environ["ENCODER_RUNTIME"] = "torch"
    return Setting(
        model=model,
        device=torch.cuda.get_device_name() if has_gpu else "the CPU",
        runtimes=["onnx", "torch"] if onnx_has_gpu == has_gpu else ["torch"],
        options=["--gpus", "1"] if has_gpu else [],
        plan=Plan(
            url="http://service/",
            payload=Payload(bodies=model.bodies()),
            clients=clients,
            seconds=seconds,
            warmup_s=_WARMUP_S,
        ),
    )


def _times(setting: Setting, *, largest: int, tell: Tell) -> tuple[Agreement, Times]:
    """Measure batches of one worker, under a policy that holds requests."""
    tell("starting one worker")
    options = [
        *setting.options,
        "--policy",
        f"fixed:{batch_times.HOLD_MS:g}",
        "--mb-max-latency",
        f"{_GOAL_MS:g}",
    ]
    with our_service(SERVICE, options=options) as server:
        plan = aimed(setting.plan, server, path=_PATH)
        tell("requesting every answer alone, then all at once")
        agreement = check_agreement(server, path=_PATH, bodies=plan.payload.bodies)
        measured = batch_times.measure(server, plan, largest=largest, goal_ms=_LONGEST_MS, tell=tell)
        learned = estimate(server, path=_PATH)
    return agreement, Times(measured=measured, line=batch_times.fit(measured.sizes), learned=learned)


def _compare(setting: Setting, *, workers: int, rounds: int, tell: Tell) -> Comparison:
    options = [*setting.options, "--workers", str(workers), "--mb-max-latency", f"{_GOAL_MS:g}"]
    return compare(
        SERVICE, ("none", "cork"), setting.plan, rounds=rounds, path=_PATH, options=options, tell=tell
    )


def _padded(setting: Setting, *, rounds: int, tell: Tell) -> list[Cell]:
    """Measure texts of different lengths in each runtime."""
    plan = replace(setting.plan, goal_s=_GOAL_MS / 1000)
    return [
        measure_cell(runtime, texts, plan=plan, options=setting.options, rounds=rounds, tell=tell)
        for runtime in setting.runtimes
        for texts in distributions()
    ]


def _text(
    setting: Setting,
    agreement: Agreement,
    times: Times,
    comparisons: dict[int, Comparison],
    cells: Sequence[Cell],
) -> str:
    plan, model = setting.plan, setting.model
    paragraphs = [
        f"""
        The model, in torch on {setting.device}, has random weights and {model.layers} layers of width
        {model.width}. A request is one row of {model.tokens} tokens, as JSON. {agreement}
        """,
        f"""
        {plan.clients} clients in a closed loop; medians over rounds of {plan.seconds:g} s; cpu in processor
        seconds per 1000 requests.
        """,
    ]
    sheets = [times_sheet(times)]
    for workers, comparison in comparisons.items():
        title = f"{plural(workers, 'worker')}, {plan.clients} clients"
        sheets.append(policies_sheet(comparison, title=title))
    sheets += map(cell_sheet, cells)
    return PAGE.text(paragraphs=[*paragraphs, *padded_paragraphs(cells)], sheets=sheets)


def times_sheet(times: Times) -> Sheet:
    """Tabulate batch times by size, with the lines through them."""
    line, learned = times.line, times.learned
    notes = [
        f"least squares through the medians: {line.intercept_ms:.3g} + {line.slope_ms:.3g} n ms, furthest "
        f"off at {line.worst_rows} rows by {line.worst_deviation:+.0%}"
    ]
    if learned is not None:
        notes.append(
            f"the gateway's estimate from the same batches, by its `/metrics`: "
            f"{learned.intercept_ms:.3g} + {learned.slope_ms:.3g} n ms"
        )
    if times.measured.stopped:
        notes.append(times.measured.stopped)
    return Sheet(
        title="Time of a batch by its rows, 1 worker",
        columns=["rows", "ms", "ms per row", "line, ms"],
        rows=[
            [
                str(size.rows),
                text(size.median_ms, digits=2),
                text(size.median_ms / size.rows, digits=3),
                text(line.milliseconds(size.rows), digits=2),
            ]
            for size in times.measured.sizes
        ],
        notes=notes,
    )
