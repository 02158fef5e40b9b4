"""What docs/guides/gpu.md needs a GPU to know, in one table of Markdown; scripts/gpu-evidence runs it.

Each part has a time limit, and one that fails does not stop the others. Exits with 1 if one failed.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from benchmarks.harness.cli import choose
from benchmarks.harness.commands import environment, uncork_serve
from benchmarks.harness.environments import Environment
from benchmarks.harness.marks import ratios
from benchmarks.harness.metrics import read_metrics, sum_of
from benchmarks.harness.paths import ROOT, SERVICES
from benchmarks.harness.report import origin, origin_lines
from benchmarks.harness.rounds import Round, Target, ask_alone, measure
from benchmarks.harness.sheets import median_known, table_line, text
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.contest import Contest, Settings
from benchmarks.peers.entrants import Work, encoder_work, entrants_of, ours
from benchmarks.peers.loads import ClosedLoop
from benchmarks.peers.marks import values
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import BenchError, Server, end_on_sigterm, serve
from uncork_loadtests.traffic.plan import Payload, Plan

SERVICE = SERVICES / "gpu.py"
_COLUMNS = ("requests/s", "p50 ms", "p99 ms", "rows/batch", "requests/s, to the first", "remark")
_PACKAGES = ("torch", "transformers", "onnxruntime", "mosec")
_WARMUP_S = 0.3
# Below the limits of the parts, so that a server that does not become ready is what fails.
_READY_S, _COMPILED_S = 40.0, 120.0
_FORMS = ("host", "tensor", "half", "bfloat16", "rows", "columns", "gradient")
_GAUGES = ("memory_used_bytes", "memory_total_bytes", "worker_memory_bytes", "utilization_ratio")
_TOKENS = [msgspec.json.encode([n * k % 1000 for k in range(1, 65)]) for n in range(1, 33)]
_STAND_IN = {"uuid": "GPU-a", "memory": [8 * 2**30, 80 * 2**30], "percent": 87, "own": [2**30]}


class OutOfTime(SystemExit):
    """A part took too long; unlike other exceptions, nothing catches it on its way."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much to measure, and on which device."""

    on_gpu: bool
    rounds: int
    seconds: float
    """Of each round."""
    processes: int
    """Most processes of the load generator."""
    patience: float
    """Factor of the time limits."""


ON_GPU = Scale(on_gpu=True, rounds=5, seconds=1.0, processes=4, patience=1)
REHEARSAL = Scale(on_gpu=False, rounds=2, seconds=1.0, processes=1, patience=6)
Row = Sequence[str]
"""A line of the table, without the name of the part."""
Part = Callable[[Scale], Iterator[Row]]


def results(scale: Scale) -> Iterator[Row]:
    """Return results on the GPU in every form, alone and in batches: NumPy must compute the same."""
    bodies = [msgspec.json.encode([float(n * k % 5) for k in range(8)]) for n in range(32)]
    with _serving(f"{SERVICE}:Results", scale) as server:
        targets = {form: _target(server, bodies, path=f"/{form}") for form in _FORMS}
        right = list(map(_numbers, targets["host"].plan.payload.expected or ()))
        for form, target in targets.items():
            if list(map(_numbers, target.plan.payload.expected or ())) != right:
                raise BenchError(f"/{form} differs from /host")
        yield from _compare(_contest(targets, replace(scale, rounds=2)), 64, scale)


def gauges(scale: Scale) -> Iterator[Row]:
    """Read the metrics of a GPU under load, until there are some."""
    found: dict[str, float] = {}
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(msgspec.json.encode({"gpus": [_STAND_IN]}))
        folders = f"{ROOT / 'tests/nvml'}:{os.environ.get('PYTHONPATH', '')}"
        stand_in = {"FAKE_NVML": file.name, "PYTHONPATH": folders, "CUDA_VISIBLE_DEVICES": _STAND_IN["uuid"]}
        with _serving(f"{SERVICE}:Results", scale, variables={} if scale.on_gpu else stand_in) as server:
            target = _target(server, [b"[1,1,1,1,1,1,1,1]"], path="/tensor")
            while not found.get("memory_total_bytes"):
                # Longer than the interval between two readings.
                measure(replace(target, plan=replace(target.plan, seconds=3.0)))
                metrics = read_metrics(server)
                found = {name: sum_of(metrics, f"uncork_gpu_{name}") for name in _GAUGES}
    yield _said(
        "NVML" if scale.on_gpu else "a stand-in for NVML",
        ", ".join(f"{name} {value:.4g}" for name, value in found.items()),
    )


def memory(scale: Scale) -> Iterator[Row]:
    """Load a model with too little memory, while its limit is learned and after."""
    for room in (7, 31, 100):
        with _serving(f"{SERVICE}:ShortOfMemory", scale, variables={"ROOM": room}) as server:
            target = _target(server, [b"1.5"], path="/double")
            plan = replace(target.plan, clients=256, seconds=2 * scale.seconds, warmup_s=0.0)
            for when in ("learning", "learned"):
                found, metrics = measure(replace(target, plan=plan)), read_metrics(server)
                failures, limit = (
                    sum_of(metrics, f"uncork_{name}") for name in ("memory_failures_total", "batch_limit")
                )
                remark = f"{plural(round(failures), 'failed call')} so far, limit {limit:g} rows"
                yield from _rows(f"room for {room}, 256 clients", {when: [found]}, remark=remark)
                if found.fault or found.refused or not failures:
                    raise BenchError(found.fault or f"{found.refused} refused, {failures:g} failed calls")


def encoder(scale: Scale) -> Iterator[Row]:
    """Compare Uncork with mosec and static batching."""
    work, here = encoder_work(), Environment(folder=Path(sys.prefix))
    contest = _contest({}, scale, work=work)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = [PEERS[name] for name in ("mosec", "static")]
        entrants = [entrants_of(peer, work=work, environment=here, folder=folder) for peer in peers]
        for entrant in (ours(work), *entrants[0], *entrants[1]):
            contest.enter(entrant, stack=stack)
        for name, target in contest.present.items():
            contest.present[name] = replace(target, plan=replace(target.plan, warmup_s=_WARMUP_S))
        for clients in (1, 16, 64):
            yield from _compare(contest, clients, scale)
        if len(contest.present) < 1 + len(entrants[0]) + len(entrants[1]):
            raise BenchError("a server did not start")


def stages(scale: Scale) -> Iterator[Row]:
    """Compare a tokenizer in a stage with one in the handler."""
    texts = [" ".join(f"w{(at * length) % 900}" for at in range(length)) for length in range(20, 220, 2)]
    bodies = list(map(msgspec.json.encode, texts))
    yield from _versions({"off": "InTurn", "on": "InStages"}, bodies, scale)


def compiled(scale: Scale) -> Iterator[Row]:
    """Compare torch.compile and CUDA graphs with eager execution, in allowed batch sizes."""
    names = ["Eager", *(["Graphs"] if scale.on_gpu else []), "Compiled"]
    yield from _versions({name: name for name in names}, _TOKENS, scale, _COMPILED_S)


def _versions(
    services: Mapping[str, str], bodies: Sequence[bytes], scale: Scale, ready_s: float = _READY_S
) -> Iterator[Row]:
    """Compare services that must give the same answers as the first."""
    targets: dict[str, Target] = {}
    with contextlib.ExitStack() as stack:
        for name, service in services.items():
            start = time.monotonic()
            server = stack.enter_context(_serving(f"{SERVICE}:{service}", scale, ready_s=ready_s))
            yield _said(name, f"ready after {time.monotonic() - start:.0f} s")
            targets[name] = _target(server, bodies)
            if targets[name].plan.payload.expected != next(iter(targets.values())).plan.payload.expected:
                raise BenchError(f"{name} gives other answers")
        for clients in (1, 128):
            yield from _compare(_contest(targets, replace(scale, rounds=2)), clients, scale)


def onnx(scale: Scale) -> Iterator[Row]:
    """Compare ONNX Runtime with PyTorch on the same device."""
    import onnxruntime

    if scale.on_gpu and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ModuleNotFoundError("onnxruntime has no CUDAExecutionProvider")
    yield from _versions({"torch": "Eager", "onnx": "Onnx"}, _TOKENS, scale)


def tests(scale: Scale) -> Iterator[Row]:
    """Run the tests that need a GPU."""
    file = "tests/e2e/workers/test_gpu.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    yield _said(file, lines[-1] if lines else "")
    if done.returncode:
        raise BenchError("; ".join(line for line in lines if line.startswith(("FAILED", "ERROR"))))


PARTS: Mapping[str, tuple[Part, float]] = {
    "results": (results, 60),
    "gauges": (gauges, 60),
    "memory": (memory, 70),
    "encoder": (encoder, 230),
    "stages": (stages, 80),
    "compiled": (compiled, 150),
    "onnx": (onnx, 80),
    "tests": (tests, 150),
}
"""Each with its most seconds."""


def main(
    cpu: Annotated[bool, typer.Option("--cpu", help="Rehearse on the CPU, with small models.")] = False,
    parts: Annotated[str, typer.Option(help="Parts to run.")] = ",".join(PARTS),
    within_s: Annotated[float, typer.Option(help="Time limit in seconds; on the CPU, six times that.")] = 460,
) -> None:
    """Print the table."""
    chosen, scale = choose(parts, [*PARTS], what="part"), REHEARSAL if cpu else ON_GPU
    if cpu:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "PEER_ENCODER_LAYERS": "1"}
    import torch

    if not cpu and not torch.cuda.is_available():
        raise typer.BadParameter("torch finds no GPU; rehearse with --cpu")
    end_on_sigterm()
    start = time.monotonic()
    _say(_heading("the CPU, a rehearsal" if cpu else torch.cuda.get_device_name()))
    until = start + within_s * scale.patience
    failed = [name for name in chosen if not run(name, *PARTS[name], scale=scale, until=until)]
    _say(f"\nFailed: {', '.join(failed) or 'nothing'}. {time.monotonic() - start:.0f} s.")
    raise typer.Exit(1 if failed else 0)


def _heading(device: str) -> str:
    packages = [name for name in _PACKAGES if importlib.util.find_spec(name)]
    *lines, command = origin_lines(origin("scripts/gpu-evidence", packages=packages))
    lines += [f"\n    {command}\n", table_line([f"on {device}", *_COLUMNS])]
    return "\n".join([*lines, table_line(["---", *["---:"] * 5, "---"])])


def run(name: str, part: Part, most_s: float, *, scale: Scale, until: float) -> bool:
    """Print the lines of a part; return whether it succeeded, or this machine lacks what it needs."""
    start, end = time.monotonic(), ""
    try:
        with _limited(min(most_s * scale.patience, until - start)):
            for case, *cells in part(scale):
                _say(table_line([f"{name}: {case}", *cells]))
    except ModuleNotFoundError as error:
        end = f"not run: {error}"
    except (Exception, OutOfTime) as error:
        end = " ".join(f"**failed**: {type(error).__name__}: {error}".split())
    if end:
        _say(table_line(_said(name, end)))
    _tell(f"{name}: {time.monotonic() - start:.0f} s")
    return not end.startswith("**")


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End the block after so many seconds with OutOfTime, which stops its servers."""

    def stop(number: int, frame: Any) -> None:
        raise OutOfTime(f"not done within {max(seconds, 0):.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tell(step: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {step}\n")


@contextlib.contextmanager
def _serving(
    service: str, scale: Scale, *, variables: Mapping[str, object] | None = None, ready_s: float = _READY_S
) -> Iterator[Server]:
    limit_s = ready_s * scale.patience
    options = {"--warmup-seconds": limit_s, "--gpus": 1 if scale.on_gpu else None}
    command = [*environment(variables or {}), *uncork_serve(service, options)]
    with serve(service.rpartition(":")[2], command=command, ready_s=limit_s) as server:
        yield server


def _target(server: Server, bodies: Sequence[bytes], *, path: str = "/predict") -> Target:
    """Return a target whose answers in batches must be those that each body gets alone."""
    expected = tuple(ask_alone(server, path=path, bodies=bodies))
    payload = Payload(bodies=tuple(bodies), expected=expected)
    plan = Plan(url=server.url(path), payload=payload, clients=1, warmup_s=_WARMUP_S)
    return Target(server=server, front=server, plan=plan)


def _numbers(answer: bytes) -> object:
    found = msgspec.json.decode(answer)
    return found["numbers"] if isinstance(found, dict) else found


def _contest(present: Mapping[str, Target], scale: Scale, *, work: Work | None = None) -> Contest:
    """Return servers to be measured in turns."""
    work = work or Work(name=", ".join(present), model="", service="", rows=(), answers=())
    rounds, seconds = scale.rounds, scale.seconds
    settings = Settings(connections=(), rates=(), rounds=rounds, seconds=seconds, generator="python")
    return Contest(work=work, settings=settings, tell=_tell, present=dict(present))


def _compare(contest: Contest, clients: int, scale: Scale) -> Iterator[Row]:
    """Load all servers in turns; raise BenchError after the rows if one failed or answered wrong."""
    count = len(contest.present)
    load = ClosedLoop(
        connections=clients,
        seconds=scale.seconds,
        generator="python",
        processes=min(scale.processes, clients),
    )
    point = contest.run(load)
    yield from _rows(plural(clients, "client"), point.rounds)
    while contest.left_out:
        yield _said(plural(clients, "client"), f"left out: {' '.join(contest.left_out.pop(0).split())}")
    if contest.wrong or len(contest.present) < count:
        raise BenchError("; ".join(contest.wrong) or "a server failed")


def _rows(case: str, rounds: Mapping[str, Sequence[Round | None]], *, remark: str = "") -> Iterator[Row]:
    rates = {name: values(found, figure="requests_per_second") for name, found in rounds.items()}
    first = next(iter(rates), "")
    for name, found in rounds.items():
        known = [each for each in found if each is not None]
        by_round = ratios(rates[name], by=rates[first]) if name != first else []
        yield [
            f"{case}, {name}",
            text(median_known(rates[name]), digits=0),
            text(median_known(each.p50 for each in known), digits=2, scale=1000),
            text(median_known(each.p99 for each in known), digits=2, scale=1000),
            text(median_known(each.rows_per_batch for each in known), digits=1),
            f"{median_known(by_round):.2f} ({min(by_round):.2f} to {max(by_round):.2f})" if by_round else "",
            "; ".join(each.fault for each in known if each.fault) or remark,
        ]


def _said(case: str, remark: str) -> Row:
    return [case, *[""] * 5, remark]


if __name__ == "__main__":
    typer.run(main)
