"""The options of ``uncork serve``."""

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from uncork.config.errors import WrongUsage
from uncork.config.names import check_policy
from uncork.config.option_fields import argument, option, read_size
from uncork.config.sources import Kind, Source
from uncork.server.server_options import OTHER_FILES, readable
from uncork.server.workers.worker_port import WorkerPortOptions, read_place, read_worker_address
from uncork_dispatcher import POLICY_USAGE
from uncork_dispatcher.wording import plural
from uncork_gateway.protocols.limits import Limits
from uncork_workers.supervision.gpus import read_gpus
from uncork_workers.wire.overrides import Override

_WORKERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_WORKERS = 10_000
_FOR_ALL_APIS = ("policy", "mb_max_latency", "mb_max_batch_size")


class WorkerCount(NamedTuple):
    """The bounds of the number of workers that the server starts."""

    least: int
    most: int

    @property
    def first(self) -> int:
        """The number of workers to start first."""
        return max(self.least, min(1, self.most))

    def __str__(self) -> str:
        if self.least < self.most:
            return f"{self.least} to {self.most} workers"
        return plural(self.most, "worker") if self.most else "workers on other machines"


def read_workers(text: str) -> WorkerCount:
    """Parse a number of workers, or a range such as 2-16 or 0-4.

    Raises:
        ValueError: if the text is neither.
    """
    found = _WORKERS.fullmatch(text.strip())
    count = WorkerCount(int(found[1]), int(found[2] or found[1])) if found else WorkerCount(1, 0)
    if not count.least <= count.most <= _MOST_WORKERS:
        raise ValueError(f"must be a number from 0 to {_MOST_WORKERS} or a range such as 2-16, got {text!r}")
    return count


def read_python(text: str) -> str:
    """Return the interpreter at a path, or in the virtual environment at a path.

    Raises:
        ValueError: if there is none.
    """
    path = Path(text)
    with suppress(RuntimeError):  # there is no such user, or this one has no home
        path = path.expanduser()
    found = path / "bin/python" if path.is_dir() else path
    if not os.access(found, os.X_OK) or found.is_dir():
        raise ValueError(
            f"{text!r} is neither an executable Python interpreter nor the folder of a virtual environment"
        )
    # Not resolved: a virtual environment is known by the path of its interpreter.
    return str(found.absolute())


def read_variable(text: str) -> tuple[str, str]:
    """Return name and value of an environment variable; raise ValueError if the text is none."""
    name, separator, value = text.partition("=")
    if not separator or not _VARIABLE.fullmatch(name):
        raise ValueError(f"must be NAME=VALUE, got {text!r}")
    if "\0" in value:  # the system ends a value there
        raise ValueError(f"must be NAME=VALUE without a NUL, got {text!r}")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(WorkerPortOptions):
    """The options of ``uncork serve``, or of one of several services.

    Attributes:
        all_workers: the maximum number of workers of all services; 0 if there is only one service.
    """

    target: list[str] | None = argument(
        None,
        "Services to run, each as MODULE:SERVICE, FILE.py:SERVICE or a model file such as model.onnx. "
        "NAME=FILE.py:SERVICE sets the name of a service; by default, it is the name of its class or file in "
        "lower case.",
        metavar="TARGET",
        show_default=False,
    )
    workers: str = option(
        "1",
        "Number of worker processes; each loads its own copy of the model. A range such as 2-16 lets the "
        "number follow the traffic; 0-16 stops the last one too, after --idle-after. 0 starts none and waits "
        "for workers on --worker-port.",
        metavar="N|MIN-MAX",
        callback=readable(read_workers),
    )
    idle_after: float = option(
        300.0,
        "Seconds without requests after which the last worker stops, with a range of --workers from 0. The "
        "next request starts one.",
        min=1,
    )
    policy: str | None = option(
        None,
        f"Policy that decides when to release a batch, for all APIs: {POLICY_USAGE}.",
        show_default="set per API, else cork",
        callback=readable(check_policy),
    )
    mb_max_latency: float | None = option(
        None, "Latency goal in milliseconds, for all APIs.", show_default="set per API, else 300"
    )
    mb_max_batch_size: int | None = option(
        None, "Maximum rows per batch, for all APIs.", min=1, show_default="set per API, else 1000"
    )
    max_batches_per_worker: int | None = option(
        None,
        "Replace a worker, without downtime, after this many batches; checked once per second.",
        min=1,
        show_default="never",
    )
    max_worker_memory: str | None = option(
        None,
        "Replace a worker, without downtime, when its resident memory exceeds this size, such as 500MB or "
        "2GiB.",
        metavar="SIZE",
        show_default="never",
        callback=readable(read_size),
    )
    worker_memory_limit: str | None = option(
        None,
        "Most memory for the data of a worker process, such as 2GiB. Allocations beyond it fail with "
        "MemoryError, before the kernel kills the process. Not for CUDA, which reserves more than it uses.",
        metavar="SIZE",
        show_default="none",
        callback=readable(read_size),
    )
    on: str = option(
        "local",
        "Where to start the workers: local, on this machine; ray, on the Ray cluster of $RAY_ADDRESS or of "
        "this machine; HOST:PORT or ray://HOST:PORT, on the cluster of that head.",
        metavar="PLACE",
        callback=readable(read_place),
    )
    worker_cpus: float | None = option(
        None, "CPUs that Ray reserves for each worker, with --on ray.", min=0, show_default="1"
    )
    worker_gpus: float | None = option(
        None,
        "GPUs that Ray reserves for each worker, with --on ray; workers can share one, as with 0.5.",
        min=0,
        show_default="0, and the worker sees none",
    )
    worker_address: str | None = option(
        None,
        "Address at which the nodes of the Ray cluster reach the gateway, as HOST or HOST:PORT.",
        metavar="ADDRESS",
        show_default="--worker-host and --worker-port",
        callback=readable(read_worker_address),
    )
    reload: bool = option(
        False, "Replace the workers when a file of the service changes; for development.", "--reload"
    )
    gpus: str | None = option(
        None,
        "GPUs to assign to the workers in turn, one each: a count, or a list of numbers or UUIDs such as "
        "0,1.",
        show_default="every worker sees all GPUs",
        callback=readable(read_gpus),
    )
    python: str | None = option(
        None,
        "Python interpreter or virtual environment for the workers; it needs the same version of Uncork.",
        metavar="PATH",
        show_default="the server's",
        callback=readable(read_python),
    )
    trust_pickle: bool = option(
        False,
        "Load model files that can run any code when they are loaded: joblib, pickle and PyTorch's.",
        "--trust-pickle",
    )
    environment: list[str] | None = option(
        None,
        "Environment variable for the workers; may be repeated.",
        metavar="NAME=VALUE",
        show_default="the server's variables",
        callback=readable(read_variable),
    )
    own_routes: bool = option(
        True,
        "Serve the APIs at their own routes, or only at /SERVICE/API.",
        "--own-routes/--no-own-routes",
    )
    weight: float | None = option(
        None,
        "Share of the requests that name no version, relative to the other versions of the service.",
        min=0,
        show_default="all to the highest version that is ready",
    )
    shadow: bool = option(
        False,
        "Give the service copies of the requests to its other versions, and drop the responses.",
        "--shadow",
    )
    max_request_rows: int = option(
        Limits().rows, "Maximum rows in one request; larger requests get 400.", min=1
    )
    max_request_values: int = option(
        Limits().values,
        "Maximum values in one request that the gateway must read one by one; larger requests get 400.",
        min=1,
    )
    state: bool = option(
        True,
        "Keep what is learned about batch times in a file, for the next start; or keep nothing.",
        "--state/--no-state",
    )
    state_folder: Path | None = option(
        None,
        "Folder of the files of --state, for this user alone.",
        metavar="FOLDER",
        show_default="$XDG_STATE_HOME/uncork, else ~/.local/state/uncork",
    )
    warmup_seconds: float = option(
        10.0,
        "Maximum seconds that a worker spends warming up APIs that have an example; 0 skips the warm-up.",
        min=0,
    )

    all_workers: int = 0

    @property
    def other_files(self) -> int:
        # Each worker has a connection and a shared file, and so has its successor during a reload.
        return OTHER_FILES + 4 * (self.all_workers or self.worker_count.most)

    @property
    def worker_count(self) -> WorkerCount:
        return read_workers(self.workers)

    @property
    def service(self) -> str:
        """The target of the only service.

        Raises:
            WrongUsage: if it is missing, without workers it is not needed; or if there are several.
        """
        targets = self.target or []
        if not targets and self.worker_count.most:
            raise WrongUsage(
                "missing argument TARGET; give the service as MODULE:SERVICE or FILE.py:SERVICE, or a model "
                "file"
            )
        if len(targets) > 1:
            raise WrongUsage(f"expected one service, got {', '.join(targets)}")
        return targets[0] if targets else ""

    @property
    def interpreter(self) -> str:
        """The Python that runs the workers."""
        return sys.executable if self.python is None else read_python(self.python)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the workers have in addition to those of the server."""
        return dict(read_variable(one) for one in self.environment or ())

    @property
    def ray_address(self) -> str | None:
        """The address for ``ray.init``; None if workers run on this machine."""
        return read_place(self.on)

    @property
    def overrides(self) -> list[Override]:
        """Settings that replace those of the APIs, in rising order of precedence."""
        flag = Source(Kind.FLAG, "")
        for_all = [
            (source.kind, Override(argument=name, value=getattr(self, name), source=source.name))
            for name in _FOR_ALL_APIS
            for source in [self.sources.get(name, flag)]
            if getattr(self, name) is not None
        ]
        ranked = sorted([*for_all, *self.api_overrides], key=lambda one: one[0])
        return [override for _, override in ranked]

    @property
    def worker_arguments(self) -> list[str]:
        """Arguments of each worker: it warms up under the current settings of its batches."""
        overrides = msgspec.json.encode(self.overrides).decode()
        warmup = ["--warmup-seconds", str(self.warmup_seconds)]
        log = ["--log-level", self.log_level, "--log-format", self.log_format]
        limit = self.worker_memory_limit
        memory = [] if limit is None else ["--memory-limit", str(read_size(limit))]
        trust = ["--trust-pickle"] if self.trust_pickle else []
        return [*log, *warmup, *memory, *trust, "--overrides", overrides]

    @property
    def max_worker_bytes(self) -> int | None:
        return None if self.max_worker_memory is None else read_size(self.max_worker_memory)

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs assigned to workers in turn; empty if every worker sees all."""
        return [] if self.gpus is None else read_gpus(self.gpus)
