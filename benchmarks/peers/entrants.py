"""The servers of the comparison: their commands, starting them, checking their answers."""

import contextlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.harness.commands import environment as variables
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import EXAMPLES, SERVICES
from benchmarks.harness.report import OURS
from benchmarks.harness.rounds import Target, ask_alone, target
from benchmarks.peers.catalogue import BATCH_CAP, ModelPoint, Peer, Row
from benchmarks.peers.embeddings import (
    FOLDER,
    REQUESTS,
    VARIABLES,
    Vectors,
    make_encoder,
    make_requests,
    write_texts,
)
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import BenchError, Server, serve
from uncork_loadtests.traffic.plan import Payload
from uncork_workers.extras import install_command

SERVERS = Path(__file__).parent / "servers"
_EXAMPLE = EXAMPLES / "digits"
_OPTIONS = {"--workers": 1, "--mb-max-latency": 1000, "--mb-max-batch-size": BATCH_CAP}
# Nothing is refused.
_LONG_GOAL_MS = 60_000
# A peer may report ready before its worker is.
_FIRST_ANSWER_SECONDS = 30.0


class WrongAnswerError(BenchError):
    """A server answered a row with a value other than the model's."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The model that all entrants serve, and the requests for it."""

    name: str
    """In the tables."""
    model: str
    """A key of :data:`benchmarks.peers.servers.peer_model.MODELS`."""
    service: str
    """What Uncork serves."""
    point: ModelPoint | None = None
    """Execution time of the sleeping model."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the model's settings."""
    rows: Sequence[Row]
    answers: Sequence[Any]
    """The right answer to each row."""
    options: Mapping[str, object] = field(default_factory=lambda: _OPTIONS)
    """Options of Uncork."""
    peer: Peer = field(default_factory=lambda: Peer(name=OURS, requirements=()))
    """The paths and forms of requests to Uncork."""
    requests: str = ""
    """MODULE:FUNCTION that makes the requests of a load and their answers; empty: the rows."""
    is_bulk: bool = False
    """Whether only one client sends its requests, which are large."""
    requirements: Sequence[str] = ()
    """Packages that the model needs in every peer's environment."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One server with one setting."""

    name: str
    command: Sequence[str]
    peer: Peer
    """Its paths, and the forms of its requests and answers."""


def sleep_work(point: ModelPoint) -> Work:
    """Return the sleeping model, with rows of four floats whose sums are exact and different."""
    rows = [[float(n), 0.5, n / 4, -1.25] for n in range(20)]
    return Work(
        name=f"sleep {point.intercept_ms:g} + {point.slope_ms:g}n ms",
        model="sleep",
        service=f"{SERVICES / 'sleep.py'}:Sleep",
        point=point,
        variables={
            "PEER_INTERCEPT_MS": f"{point.intercept_ms:g}",
            "PEER_SLOPE_MS": f"{point.slope_ms:g}",
        },
        rows=rows,
        answers=[sum(row) for row in rows],
    )


def digits_work() -> Work:
    """Return the forest of the digits example, with images and its answers to them.

    Raises:
        BenchError: if scikit-learn is not installed or the forest is not trained.
    """
    if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("joblib") is None:
        raise BenchError(f"digits requires scikit-learn; run {install_command('examples')}")
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
        service=f"{_EXAMPLE / 'service.py'}:Digits",
        variables={"PEER_FOREST": str(file)},
        rows=images.tolist(),
        answers=joblib.load(file).predict(images.astype("float32")).tolist(),
        # A pickled forest belongs to the version that made it.
        requirements=(f"scikit-learn=={sklearn.__version__}",),
    )


def encoder_work() -> Work:
    """Return a transformer encoder with random weights, on a GPU if torch finds one, and rows of 64 tokens.

    Raises:
        BenchError: if torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise BenchError("the encoder needs torch: pip install torch")
    import torch

    from benchmarks.peers.servers.peer_model import VOCABULARY, load

    random = Random(1)
    rows = [[random.randrange(VOCABULARY) for _ in range(64)] for _ in range(20)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
    return Work(
        name=f"encoder on {device}",
        model="encoder",
        service=f"{SERVICES / 'peer_encoder.py'}:Encoder",
        rows=rows,
        answers=load("encoder")(rows),
        requirements=(f"torch=={torch.__version__.partition('+')[0]}",),
    )


def embeddings_works(folder: Path) -> list[Work]:
    """Return a text encoder, saved in the folder: requests with one text each, and of a client with many.

    Raises:
        BenchError: if transformers or torch is not installed.
    """
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        raise BenchError("--embeddings needs torch and transformers; scripts/bench installs them")
    make_encoder(folder)
    os.environ[FOLDER] = str(folder)  # for the load generator
    return [_embeddings_work(folder, name, *made) for name, made in make_requests(folder).items()]


def _embeddings_work(folder: Path, name: str, rows: list[list[str]], answers: list[Vectors]) -> Work:
    return Work(
        name=f"encoder, {plural(REQUESTS[name], 'text')} per request",
        model="encoder",
        service=str(folder),
        variables={**VARIABLES, FOLDER: str(folder)},
        rows=rows,
        answers=answers,
        options={"--workers": 1, "--mb-max-latency": _LONG_GOAL_MS},
        peer=Peer(name=OURS, requirements=(), path="/v1/embeddings", write=write_texts, read=Vectors),
        requests=f"benchmarks.peers.embeddings:{name}",
        is_bulk=REQUESTS[name] > 1,
    )


def ours(work: Work, *, name: str = OURS, python: str = sys.executable) -> Entrant:
    """Return Uncork with its defaults, in the environment of ``python``."""
    command = [*variables(work.variables), *uncork_serve(work.service, work.options, python=python)]
    return Entrant(name=name, command=command, peer=work.peer)


def entrants_of(peer: Peer, *, work: Work, environment: Environment, folder: Path) -> list[Entrant]:
    """Return an entrant for each setting of a peer; `folder` is for its temporary files."""
    base = variables({**work.variables, "TMPDIR": folder})
    if peer.command:
        places = {"bin": environment.folder / "bin", "servers": SERVERS, "folder": work.service}
        base += peer.command.format(**places).split()
        return [
            Entrant(name=f"{peer.name} {more}".strip(), command=[*base, *more.split()], peer=peer)
            for more in peer.options
        ]
    base += [str(environment.python), str(SERVERS / peer.server_file)]
    base += ["--model", work.model]
    return [
        Entrant(name=peer.name, command=base, peer=peer)
        if wait is None
        else Entrant(name=f"{peer.name} {wait:g} ms", command=[*base, "--wait-ms", f"{wait:g}"], peer=peer)
        for wait in peer.waits_ms
    ]


@contextlib.contextmanager
def running(entrant: Entrant, *, work: Work) -> Iterator[Target]:
    """Run an entrant until the block ends; enter once it has answered every row right.

    Raises:
        WrongAnswerError: if it answers a row wrong.
        BenchError: if it does not start or answer.
    """
    peer = entrant.peer
    with _whole_group(entrant) as server:
        bodies = [peer.write(row) for row in work.rows]
        _await_answer(server, path=peer.path, body=bodies[0])
        answers = ask_alone(server, path=peer.path, bodies=bodies)
        for answer, right in zip(answers, work.answers, strict=True):
            check_answer(answer, right=right, entrant=entrant)
        front = replace(server, pid=_front_pid(server, peer.front))
        found = target(server, path=peer.path, bodies=bodies, expected=answers, front=front)
        if work.requests:
            found = replace(found, plan=replace(found.plan, payload=Payload(function=work.requests)))
        yield found


def check_answer(answer: bytes, *, right: object, entrant: Entrant) -> None:
    """Raise WrongAnswerError unless the answer holds the right value."""
    try:
        value = entrant.peer.read(answer)
    except (LookupError, TypeError, ValueError) as error:
        raise WrongAnswerError(f"{entrant.name} answers with {answer[:200]!r}: {error!r}") from error
    if value != right:
        raise WrongAnswerError(f"{entrant.name} answers {str(value)[:200]}, right is {str(right)[:200]}")


@contextlib.contextmanager
def _whole_group(entrant: Entrant) -> Iterator[Server]:
    """Serve, then kill the rest of the server's process group."""
    started: Server | None = None
    try:
        with serve(entrant.name, command=entrant.command, ready_path=entrant.peer.ready_path) as started:
            yield started
    finally:
        if started is not None:
            # Some peers leave workers behind.
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
    """Return the process below the server whose command line contains `front`."""
    if not front:
        return server.pid
    for process in psutil.Process(server.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended
            # With a blank at the end, which a pattern may ask for.
            if front in " ".join([*process.cmdline(), ""]):
                return process.pid
    raise BenchError(f"{server.name} has no process with {front!r} in its command line")
