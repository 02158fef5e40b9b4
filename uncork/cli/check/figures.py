"""Facts about a service, its settings and the machine, and the findings that follow."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from uncork_dispatcher.advice import Advice, advise
from uncork_gateway.services.paths import Paths
from uncork_loadtests.tuning.batch_times import Line, SizeTime
from uncork_workers.wire.schema import ApiSettings

Severity = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """An advice with its severity.

    Attributes:
        severity: error: does not work; warning: works badly; note: worth knowing.
        api: the API that it concerns; empty for all.
        service: the service that it concerns; empty for the only one without a name, and for what all
            services need together.
    """

    severity: Severity
    advice: Advice
    api: str = ""
    service: str = ""


Findings = Iterator[Finding]


def error(key: str, /, **figures: Any) -> Finding:
    return Finding("error", advise(key, **figures))


def warning(key: str, /, **figures: Any) -> Finding:
    return Finding("warning", advise(key, **figures))


def note(key: str, /, **figures: Any) -> Finding:
    return Finding("note", advise(key, **figures))


@dataclass(frozen=True, kw_only=True)
class Times:
    """Execution times of batches in a worker, by rising size: rows, or cost where the API defines one."""

    sizes: tuple[SizeTime, ...]
    line: Line
    overhead_ms: float = 0.0
    """Time of a batch of the smallest size outside the worker."""
    row_bytes: int | None = None
    """Length of the body of a row."""
    memory_per_row_bytes: float | None = None
    fits: float = math.inf
    """What fits into memory, if a size ran out of it; else infinity."""
    stages_s: tuple[float, float, float] | None = None
    """Seconds of prepare, the handler and finish for the largest size, if the API has stages."""

    @property
    def smallest_ms(self) -> float:
        """The time of the smallest batch until its reply."""
        return self.sizes[0].median_ms + self.overhead_ms

    def batch_ms(self, size: float) -> float:
        """Return the time of a batch until its reply, measured or else predicted by the line."""
        measured = next((one.median_ms for one in self.sizes if one.rows == size), None)
        return (self.line.milliseconds(size) if measured is None else measured) + self.overhead_ms


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The smallest batch that the handler failed to answer."""

    rows: int
    says: str
    """A verb phrase: ``raises KeyError: 'a' (service.py:7)``."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The faults found by comparing results of rows in a batch with results of the same rows alone.

    Attributes:
        key: of the advice; empty if nothing is wrong.
        figures: of the advice.
        excess: the largest gap between floats of a list, as a multiple of the largest tolerance there, or
            in half precision of the one for float32; 1 for bytes, infinite for other values and faults, 0 if
            no fault was found.
    """

    key: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    excess: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ApiFigures:
    """An API under the current settings.

    Attributes:
        row_is_made_up: the example row was made from the schema, not given by the author.
        times: None if not measured.
        unmeasured: why there are no times although nothing failed; empty otherwise.
        failure: None if every batch was answered.
        timed_out: the smallest batch exceeded ``timeout``.
        comparison: None if rows never share a batch, or the smallest batch was not answered.
    """

    name: str
    settings: ApiSettings
    streams: bool = False
    concurrency: int = 1
    row_is_made_up: bool = True
    times: Times | None = None
    unmeasured: str = ""
    failure: Failure | None = None
    timed_out: bool = False
    comparison: Comparison | None = None

    @property
    def unit(self) -> str:
        """The unit of batch sizes."""
        return "row" if self.settings.cost is None else "unit of cost"

    @property
    def is_apart(self) -> bool:
        """True if its batches and those of other APIs do not wait for each other."""
        return bool(self.settings.workers) or self.concurrency > 1

    @property
    def is_single(self) -> bool:
        """True if each request is a batch of its own."""
        return self.settings.policy == "none"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of the server, and the resources of the machine.

    Attributes:
        cores: cores that workers may use.
        threads: OMP_NUM_THREADS; None if unset.
        free_bytes: available memory.
        worker_bytes: resident memory of a worker before its first batch; None if unknown.
        max_connections: the most client connections that are wanted; None: as many as possible.
        possible_connections: the most that the limit of open files leaves.
        client_timeout_ms: how long clients wait; None if unknown.
        is_elsewhere: workers run on other machines, of which nothing is known.
    """

    workers: int = 1
    gpus: tuple[str, ...] = ()
    cores: int = 1
    threads: int | None = None
    free_bytes: int | None = None
    worker_bytes: int | None = None
    max_worker_memory_bytes: int | None = None
    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    max_connections: int | None = None
    possible_connections: int = 10_000
    drain_timeout_s: float = 30.0
    host: str = "127.0.0.1"
    admin_host: str | None = None
    has_keys: bool = False
    has_tls: bool = False
    client_timeout_ms: float | None = None
    is_elsewhere: bool = False

    @property
    def room_bytes(self) -> int | None:
        """How much memory a worker may take in the check; None if unknown."""
        limits = (self.free_bytes, self.max_worker_memory_bytes)
        return min([one for one in limits if one is not None], default=None)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The facts that findings follow from.

    Attributes:
        service: the name of its class.
        paths: where its APIs are served.
    """

    service: str
    plan: Plan
    apis: tuple[ApiFigures, ...] = ()
    paths: Paths = field(default_factory=Paths)
