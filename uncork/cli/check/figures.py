"""What is known of a service, its settings and the machine when it is judged, and what is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from uncork_loadtests.tuning.batch_times import Line, SizeTime
from uncork_workers.wire.schema import ApiSettings

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that does not fit.

    Attributes:
        severity: an error does not work, a warning works badly, a note is worth knowing.
        code: names the kind of finding.
        api: which it concerns; empty if all.
        wrong: what is wrong.
        advice: what to set or do.
    """

    severity: Severity
    code: str
    api: str = ""
    wrong: str
    advice: str


Findings = Iterator[Finding]


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long batches took in a worker. Sizes are in rows, or in cost where the api gives one.

    Attributes:
        sizes: those that were run, rising.
        line: through them.
        overhead_ms: what a batch of the smallest size takes beside the worker's own time.
        row_bytes: length of the body of a row; None if it is not known.
        memory_per_row_bytes: by which a worker grows with each row of a batch; None if it cannot be told.
    """

    sizes: tuple[SizeTime, ...]
    line: Line
    overhead_ms: float = 0.0
    row_bytes: int | None = None
    memory_per_row_bytes: float | None = None

    @property
    def smallest_ms(self) -> float:
        """The time of the smallest batch, to the answer."""
        return self.sizes[0].median_ms + self.overhead_ms

    def batch_ms(self, size: float) -> float:
        """The time of a batch, to the answer: as measured, or by the line where it was not."""
        measured = next((one.median_ms for one in self.sizes if one.rows == size), None)
        return (self.line.milliseconds(size) if measured is None else measured) + self.overhead_ms


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A batch that the handler did not answer.

    Attributes:
        rows: how many the batch had; batches of fewer were answered.
        says: what the handler did, as a verb phrase: ``raises KeyError: 'a' (service.py:7)``.
    """

    rows: int
    says: str


@dataclass(frozen=True, kw_only=True)
class ApiFigures:
    """An api under the settings in force.

    Attributes:
        row_is_made_up: whether the row was made from the schema, rather than given with the api.
        times: None if it was not measured.
        unmeasured: why batch times are not known, though nothing failed; empty if they are.
        failure: the smallest batch that the handler did not answer; None if there was none.
        timed_out: whether the smallest batch did not end within ``timeout``.
    """

    name: str
    settings: ApiSettings
    streams: bool = False
    row_is_made_up: bool = True
    times: Times | None = None
    unmeasured: str = ""
    failure: Failure | None = None
    timed_out: bool = False

    @property
    def unit(self) -> str:
        """What batches are counted in."""
        return "rows" if self.settings.cost is None else "in cost"

    @property
    def is_single(self) -> bool:
        """Whether requests are run one by one."""
        return self.settings.policy == "none"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the command line and the machine say.

    Attributes:
        cores: on which the workers may run.
        threads: of OpenMP and BLAS in each worker, as the environment sets it; None if it does not.
        visible_gpus: how many the machine has; None if that cannot be told.
        free_bytes: memory that is available now.
        worker_bytes: resident memory of a worker before its first batch; None if it is not known.
        open_files: how many this process may have; None: any number.
        client_timeout_ms: how long clients wait; None if they have not said.
    """

    workers: int = 1
    gpus: tuple[str, ...] = ()
    cores: int = 1
    threads: int | None = None
    visible_gpus: int | None = None
    free_bytes: int | None = None
    worker_bytes: int | None = None
    max_worker_memory_bytes: int | None = None
    max_body_bytes: int = 64 * 2**20
    max_queue_rows: int = 20_000
    max_queue_bytes: int = 256 * 2**20
    max_connections: int = 10_000
    open_files: int | None = None
    drain_timeout_s: float = 30.0
    host: str = "127.0.0.1"
    admin_host: str | None = None
    has_keys: bool = False
    has_tls: bool = False
    client_timeout_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All that is judged."""

    service: str
    plan: Plan
    apis: tuple[ApiFigures, ...] = field(default=())
