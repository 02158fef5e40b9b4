"""The servers that are measured beside each other: their commands, starting them, asking them."""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.environments import Environment
from benchmarks.harness.generators import Traffic
from benchmarks.harness.paths import EXAMPLES, SERVICES
from benchmarks.pairs.pairs import ask_alone
from benchmarks.peers.catalogue import Peer, Row, read_number, write_row
from benchmarks.peers.model_point import BATCH_CAP, ModelPoint
from uncork_loadtests.servers import HOST, BenchError, Server, parse_stat, serve

OURS = "uncork"
SERVERS = Path(__file__).parent / "servers"
_SLEEP = SERVICES / "sleep.py"
_EXAMPLE = EXAMPLES / "digits"
_GOAL_MS = 1000
_FIRST_ANSWER_SECONDS = 30.0
"""A peer may say it is ready before its worker is."""
_PROC = Path("/proc")


class WrongAnswerError(BenchError):
    """A server answered a row with something else than the model's answer."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all entrants serve at one point, and what they are asked."""

    name: str
    """As it is called in the tables."""
    model: str
    """As the peers know it: sleep or digits."""
    point: ModelPoint | None
    """How long the sleeping model takes."""
    variables: Mapping[str, str]
    """Environment variables that tell the model its settings."""
    rows: Sequence[Row]
    answers: Sequence[float]
    """The right one for each row."""
    requirements: Sequence[str]
    """What the model needs in the environment of every peer."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One server with one setting."""

    name: str
    command: Sequence[str]
    ready_path: str
    path: str
    write: Callable[[Row], bytes]
    read: Callable[[bytes], object]
    front: str


@dataclass(frozen=True, kw_only=True)
class Running:
    """An entrant that is up and answers right."""

    server: Server
    front: Server
    """The same, seen as the process that speaks HTTP."""
    traffic: Traffic
    """Every row, with the bytes of its answer."""


def sleep_work(point: ModelPoint) -> Work:
    """Give rows of four floats whose sums are exact, and all different."""
    rows = [[float(n), 0.5, n / 4, -1.25] for n in range(20)]
    return Work(
        name=f"sleep {point.intercept_ms:g} + {point.slope_ms:g}n ms",
        model="sleep",
        point=point,
        variables={
            "PEER_INTERCEPT_MS": f"{point.intercept_ms:g}",
            "PEER_SLOPE_MS": f"{point.slope_ms:g}",
        },
        rows=rows,
        answers=[sum(row) for row in rows],
        requirements=(),
    )


def digits_work() -> Work:
    """Give images of the digits example and what its forest, asked here, makes of them.

    BenchError if scikit-learn is not installed or the forest is not trained.
    """
    if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("joblib") is None:
        raise BenchError("digits needs scikit-learn: pip install 'uncork[examples]'")
    import joblib
    import sklearn
    from sklearn.datasets import load_digits

    file = _EXAMPLE / "model" / f"forest-{sklearn.__version__}.joblib"
    if not file.exists():
        raise BenchError(f"the forest is not trained: python {_EXAMPLE / 'train.py'}")
    images = load_digits().data[:20]
    return Work(
        name="digits",
        model="digits",
        point=None,
        variables={"PEER_FOREST": str(file)},
        rows=images.tolist(),
        answers=joblib.load(file).predict(images.astype("float32")).tolist(),
        # A pickled forest belongs to the version that made it.
        requirements=(f"scikit-learn=={sklearn.__version__}",),
    )


def ours(work: Work, *, workers: int = 1, goal_ms: float = _GOAL_MS) -> Entrant:
    """Uncork with one worker and its defaults."""
    service = f"{_EXAMPLE / 'service.py'}:Digits" if work.model == "digits" else f"{_SLEEP}:Sleep"
    command = [*_variables(work), sys.executable, "-m", "uncork", "serve", service, "--host", HOST]
    command += ["--workers", str(workers), "--mb-max-latency", f"{goal_ms:g}"]
    command += ["--mb-max-batch-size", str(BATCH_CAP)]
    return Entrant(
        name=OURS,
        command=command,
        ready_path="/readyz",
        path="/predict",
        write=write_row,
        read=read_number,
        front="",
    )


def entrants_of(peer: Peer, *, work: Work, environment: Environment, folder: Path) -> list[Entrant]:
    """One entrant for each setting of `peer`; `folder` takes what it writes while it runs."""
    base = [*_variables(work), f"TMPDIR={folder}", str(environment.python), str(SERVERS / peer.server_file)]
    base += ["--model", work.model]
    return [
        Entrant(
            name=peer.name if wait is None else f"{peer.name} {wait:g} ms",
            command=base if wait is None else [*base, "--wait-ms", f"{wait:g}"],
            ready_path=peer.ready_path,
            path=peer.path,
            write=peer.write,
            read=peer.read,
            front=peer.front,
        )
        for wait in peer.waits_ms
    ]


def _variables(work: Work) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in work.variables.items())]


@contextlib.contextmanager
def running(entrant: Entrant, *, work: Work) -> Iterator[Running]:
    """Run `entrant` until the block ends; enter once it has answered every row right.

    Raises BenchError when it does not start or answer, WrongAnswerError when it answers a row wrong.
    """
    with _whole_group(entrant) as server:
        bodies = [entrant.write(row) for row in work.rows]
        _await_answer(server, path=entrant.path, body=bodies[0])
        answers = ask_alone(server, path=entrant.path, bodies=bodies)
        for answer, right in zip(answers, work.answers, strict=True):
            check_answer(answer, right=right, entrant=entrant)
        traffic = Traffic(path=entrant.path, bodies=bodies, expected=answers, connections=1, seconds=1.0)
        yield Running(
            server=server, front=replace(server, pid=_front_pid(server, entrant.front)), traffic=traffic
        )


def check_answer(answer: bytes, *, right: float, entrant: Entrant) -> None:
    """Raise WrongAnswerError unless `answer` holds the value that is `right`."""
    try:
        value = entrant.read(answer)
    except (LookupError, TypeError, ValueError) as error:
        raise WrongAnswerError(f"{entrant.name} answers with {answer[:200]!r}: {error!r}") from error
    if value != right:
        raise WrongAnswerError(f"{entrant.name} answers {json.dumps(value)}, right is {right:g}")


@contextlib.contextmanager
def _whole_group(entrant: Entrant) -> Iterator[Server]:
    """Serve, and leave nothing of the server's process group behind."""
    started: Server | None = None
    try:
        with serve(entrant.name, command=entrant.command, ready_path=entrant.ready_path) as started:
            yield started
    finally:
        if started is not None:
            # Some peers leave workers behind when they are told to stop.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def _await_answer(server: Server, *, path: str, body: bytes) -> None:
    deadline = time.monotonic() + _FIRST_ANSWER_SECONDS
    while True:
        try:
            ask_alone(server, path=path, bodies=[body])
        except BenchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _front_pid(server: Server, front: str) -> int:
    """Find the process below `server` whose command line holds `front`."""
    if not front:
        return server.pid
    for pid in _below(server.pid):
        with contextlib.suppress(OSError):  # it ended while we were looking
            if front in (_PROC / str(pid) / "cmdline").read_text().replace("\0", " "):
                return pid
    raise BenchError(f"{server.name} has no process with {front!r} in its command line")


def _below(pid: int) -> list[int]:
    parents = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)], _ = parse_stat((folder / "stat").read_text())
    found = [pid]
    for each in found:  # grows while it is walked
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]
