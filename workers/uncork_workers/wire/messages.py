"""The messages between gateway and worker; each is the header of a frame.

Batches and replies are many, so they leave out fields that have their defaults.
"""

from typing import Annotated, Literal

import msgspec

from uncork_workers.wire.forms import Form, ListForm, RecordsForm, RowsForm, Wanted
from uncork_workers.wire.schema import ServiceDescription

UNKNOWN_STEP = "..."

_Status = Annotated[int, msgspec.Meta(ge=200, le=599)]
# The bounds also exclude infinity and NaN.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
METRIC_NAME = r"^[a-z][a-z0-9_]*(?<!_total)(?<!_count)(?<!_sum)(?<!_bucket)(?<!_created)\Z"
TAKEN_LABELS = ("api", "service", "le")
LABEL_NAME = rf"^(?!(?:{'|'.join(TAKEN_LABELS)})\Z)[a-z][a-z0-9_]*\Z"
LONGEST_NAME, LONGEST_LABEL, MOST_LABELS = 64, 128, 5
"""Of metrics that handlers record: characters of a name and of a label's value, and labels of a count."""
_MetricName = Annotated[str, msgspec.Meta(pattern=METRIC_NAME, max_length=LONGEST_NAME)]
_LabelName = Annotated[str, msgspec.Meta(pattern=LABEL_NAME, max_length=LONGEST_NAME)]
_LabelValue = Annotated[str, msgspec.Meta(max_length=LONGEST_LABEL)]
_Labels = Annotated[dict[_LabelName, _LabelValue], msgspec.Meta(max_length=MOST_LABELS)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
_Observed = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_Cost = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
MOST_GPUS = 64
_GpuName = Annotated[str, msgspec.Meta(max_length=96)]

Stage = Literal["load", "setup", "warmup"]


class RowPath(msgspec.Struct, frozen=True, array_like=True):
    """A location in the rows of a request: the row number, from 0, then keys and indexes inside the row."""

    row: int
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return json_path(self.row, *self.path)


def json_path(*steps: str | int) -> str:
    """Return a path in a JSON document, in backticks; ``UNKNOWN_STEP`` stands for an unknown step."""
    return f"`${''.join(map(_step, steps))}`"


def _step(step: str | int) -> str:
    if step == UNKNOWN_STEP or isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{step!r}]"


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The worker has imported its service.

    Attributes:
        index: number of the worker, from 0.
        service: what it serves.
        launch: which launch of the supervisor started the process; None if something else did.
        pid: process id on the worker's machine.
        files: the service's source files on the worker's machine.
        host: the machine, for placement and pages; empty for the gateway's own.
        version: of the worker's uncork; empty for the gateway's own.
        code: a digest of these files, as the worker has loaded them.
    """

    index: int
    service: ServiceDescription
    launch: int | None = None
    pid: int = 0
    files: list[str] = []
    host: str = ""
    version: str = ""
    code: str = ""


class WarmUp(msgspec.Struct, tag="warmup", frozen=True):
    """The worker is about to call an API with ``rows`` copies of its warm-up example."""

    api: str
    rows: int


class RowResult(msgspec.Struct, frozen=True):
    """A handler's result for the warm-up example, as the client of a request with one row would get it.

    ``body`` is the JSON text of the row, with its ``form`` if the result is an array; empty if it is large.
    With a ``content_type`` it is a complete response.
    """

    body: bytes = b""
    form: ListForm | RecordsForm | None = None
    content_type: str = ""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The worker has set up its service, which now consists of ``files``, and accepts batches.

    By API, ``profile`` has (cost, seconds) of the warm-up batches, padding to allowed lengths and batch sizes
    included, ``results`` the result for one row, if it is JSON or text, and ``limits`` what
    :attr:`Reply.limit` is, if the warm-up ran out of memory. ``surroundings`` is a digest of the device and
    the versions of libraries.
    """

    files: list[str] = []
    profile: dict[str, list[tuple[_Cost, _Seconds]]] = {}
    results: dict[str, RowResult] = {}
    limits: dict[str, _Cost] = {}
    surroundings: str = ""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The worker could not load, set up or warm up its service, and exits.

    ``traceback`` is empty if no code of the service is involved.
    """

    index: int
    stage: Stage
    message: str
    traceback: str = ""


class Meta(msgspec.Struct, frozen=True):
    """The HTTP context of a raw body: content type, query string, and headers with lower-case names."""

    content_type: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Batch(msgspec.Struct, tag="batch", frozen=True, omit_defaults=True):
    """Execute these requests; the payload, or the shared file, holds their bodies, end to end.

    Attributes:
        limit_rows: the largest cost of one handler call.
        lengths: bytes in each request's body.
        rows: rows in each request.
        allowed_batch_sizes: pad handler calls to one of these numbers of rows; the largest is their limit.
        allowed_lengths: the only lengths to which the handler pads rows, in the unit of cost; empty: any.
        costs: cost of each row, those of one request after those of the other; None if the API has no cost.
        idempotent: whether a failed batch may be executed again, in parts.
        timeout_s: how long the gateway waits for the reply.
        forms: the form of each body, or a single one for all.
        metas: one per request if the form is :class:`RawForm`.
        accept: media type of the responses; empty for rows.
        raw: how each request gets its rows; None if all get JSON.
        id: the batch's id in logs.
        left_s: seconds from the predicted start to each request's deadline; negative if it will have passed.
        trace: ``traceparent`` and ``tracestate`` of the batch's span.
        in_file: whether the bodies are in the shared file, and the payload is empty; see :class:`TakeFile`.
        pads: whether the model pads the rows of a call to the longest, so that its size is rows x longest.
        fits: what :attr:`Reply.limit` was in the last process of this worker; None: unknown.
        group: the text of the batch's group, as :mod:`uncork_workers.wire.groups` writes it; None if the API
            has no ``group_by``.
        parameters: the parameters of each request, as a JSON object, empty for none; None if none has any.
        bulk: whether each request belongs to the second class; None if none does.
        headers: by name, the headers of each request that the API's handler may read; None if it reads none.
    """

    batch: int
    api: str
    limit_rows: int
    lengths: list[int]
    rows: list[int]
    allowed_batch_sizes: tuple[int, ...] | None = None
    allowed_lengths: tuple[float, ...] = ()
    costs: list[_Cost] | None = None
    idempotent: bool = True
    timeout_s: _Seconds = 60.0
    forms: tuple[Form, ...] = (None,)
    metas: list[Meta] | None = None
    accept: str = ""
    raw: list[Wanted] | None = None
    id: str = ""
    left_s: list[float] = []
    trace: tuple[str, str] | None = None
    in_file: bool = False
    pads: bool = False
    fits: _Cost | None = None
    group: bytes | None = None
    parameters: list[bytes] | None = None
    bulk: list[bool] | None = None
    headers: list[dict[str, str]] | None = None


class TakeFile(msgspec.Struct, tag="file", frozen=True):
    """Carries the descriptor of the shared file, for each batch and reply with ``in_file``.

    Batches use the two halves of the file in turn; see :mod:`uncork_workers.wire.shared_file`.
    """


class ExceptionReport(msgspec.Struct, frozen=True):
    """An exception in the service's code that failed ``requests`` requests with status 500.

    ``error`` is the name of its class, ``place`` the file and line in the service, if known. ``message`` may
    quote client data. ``id`` is the error id in the responses and in the log.
    """

    error: str
    place: str
    message: str
    id: str = ""
    requests: int = 0


class Reply(msgspec.Struct, tag="reply", frozen=True, omit_defaults=True):
    """The result of a batch; the payload, or the shared file, holds the response bodies, end to end.

    Attributes:
        worked: whether every handler call succeeded, and none was cut short.
        seconds: time the worker spent on the batch.
        statuses: HTTP status of each request. The body of a status other than 200 is an error text.
        lengths: bytes in each body.
        chunks: (cost, seconds) of each successful handler call.
        forms: the form of each body, or a single one for all.
        content_types: per request the media type of a complete response, whatever its status; empty for rows.
        headers: per request the headers that the handler set.
        reasons: error texts that refer to rows, by position of the request. Only the gateway knows where the
            client wrote these rows; the body gives the paths as if it were a list of rows.
        in_file: as in :class:`Batch`.
        limit: the size that calls of the API may have on this worker, in rows or cost, because larger ones
            ran out of memory; None: none has.
        memory_failures: how many calls of this batch ran out of memory.
        stages_s: seconds of prepare, the handler and finish, if the API has stages.
        overlaps: whether the next batch may be prepared while this one runs.
        counts: (name, labels, amount) of what the handler has counted, in calls that succeeded.
        observed: by name, the values that it has observed in them.
        dropped_metrics: how many values it has recorded beyond the limits.
        cancelled: whether the worker did less, or may have, because clients had left.
        timed_out: whether the worker cancelled the handler when the time of the batch was up.
    """

    batch: int
    worked: bool
    seconds: _Seconds
    statuses: list[_Status]
    lengths: list[int]
    chunks: list[tuple[_Cost, _Seconds]]
    forms: tuple[RowsForm, ...] = (None,)
    content_types: list[str] | None = None
    headers: list[list[tuple[str, str]]] | None = None
    exceptions: list[ExceptionReport] = []
    reasons: dict[int, list[str | RowPath]] = {}
    in_file: bool = False
    limit: _Cost | None = None
    memory_failures: Annotated[int, msgspec.Meta(ge=0)] = 0
    stages_s: tuple[_Seconds, _Seconds, _Seconds] | None = None
    overlaps: bool = False
    counts: list[tuple[_MetricName, _Labels, _Amount]] = []
    observed: dict[_MetricName, list[_Observed]] = {}
    dropped_metrics: Annotated[int, msgspec.Meta(ge=0)] = 0
    cancelled: bool = False
    timed_out: bool = False


class AnswerHead(msgspec.Struct, frozen=True):
    """Status and headers of a streamed response."""

    status: _Status
    content_type: str
    headers: list[tuple[str, str]] = []


class Piece(msgspec.Struct, tag="piece", frozen=True):
    """The next bytes of a streamed response to the batch's only request; the first piece has the ``head``.

    A :class:`Reply` ends the response. Its body is empty unless the handler failed.
    """

    batch: int
    head: AnswerHead | None = None


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """The clients of these requests of a batch, by position, have left; the worker still sends the reply.

    The batch may have ended already.
    """

    batch: int
    requests: tuple[int, ...]


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """Check that an idle worker is alive."""


class Pong(msgspec.Struct, tag="pong", frozen=True):
    """The answer to :class:`Ping`."""


class Gpu(msgspec.Struct, frozen=True):
    """The use of a GPU, or of a MIG instance of one. NVML does not report the values that are None.

    Attributes:
        memory_used_bytes, memory_total_bytes: its memory that any process uses, and all of it.
        worker_memory_bytes: its memory that the worker's process uses.
        utilization: the share of about the last second in which it ran a kernel of any process.
    """

    memory_used_bytes: Bytes | None = None
    memory_total_bytes: Bytes | None = None
    worker_memory_bytes: Bytes | None = None
    utilization: Share | None = None


class Gpus(msgspec.Struct, tag="gpus", frozen=True):
    """The use of the GPUs that the worker sees, by their numbers in NVML; MIG instances by UUID."""

    gpus: Annotated[dict[_GpuName, Gpu], msgspec.Meta(max_length=MOST_GPUS)]


class Leaving(msgspec.Struct, tag="leaving", frozen=True):
    """The worker wants to exit: the gateway sends no more batches, and closes the connection when idle."""


class Goodbye(msgspec.Struct, tag="goodbye", frozen=True):
    """The gateway closes the connection of a worker that the supervisor did not launch.

    Attributes:
        reason: why, for people; a sentence without a full stop.
        is_final: whether the gateway would close every further connection of this process too.
    """

    reason: str
    is_final: bool = False


Message = (
    Hello
    | WarmUp
    | Ready
    | Failed
    | TakeFile
    | Batch
    | Reply
    | Piece
    | Cancel
    | Ping
    | Pong
    | Gpus
    | Leaving
    | Goodbye
)
