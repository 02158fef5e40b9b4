"""The messages between gateway and worker: headers of the frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from uncork_workers.wire.schema import ServiceDescription

UNKNOWN_STEP = "..."

_Status = Annotated[int, msgspec.Meta(ge=200, le=599)]
# Neither negative, nor infinite, nor not a number.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Cost = Annotated[float, msgspec.Meta(gt=0, le=1e18)]

Stage = Literal["load", "setup", "warmup"]


class TensorForm(msgspec.Struct, tag="tensor", frozen=True):
    """The body is the raw rows of a tensor; datatype and shape of a row as in the Open Inference Protocol."""

    datatype: str
    shape: tuple[int, ...]


class ListForm(msgspec.Struct, tag="list", frozen=True):
    """The body is the rows of such a tensor as JSON texts, with commas between them."""

    datatype: str
    shape: tuple[int, ...]


class TableForm(msgspec.Struct, tag="table", frozen=True):
    """The body is lines of CSV, each with its line end, without the ``header``."""

    header: str


class RawForm(msgspec.Struct, tag="raw", frozen=True):
    """The body is as the client sent it; a :class:`Meta` says what it is."""


Form = TensorForm | TableForm | RawForm | None
"""How the body of a request is written; None: JSON rows with commas between them."""

RowsForm = TensorForm | ListForm | None
"""How the rows of an answer are written; None: JSON texts of any kind, with commas between them."""

F = TypeVar("F", Form, RowsForm)


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The worker has imported its service, from ``files``."""

    index: int
    pid: int
    service: ServiceDescription
    files: list[str] = []


class WarmUp(msgspec.Struct, tag="warmup", frozen=True):
    """The worker has set its service up, and calls an api with so many rows of its example now."""

    api: str
    rows: int


class RowResult(msgspec.Struct, frozen=True):
    """A handler's result for one row: the ``form`` of an array's row, or the JSON of any other result."""

    body: bytes = b""
    form: ListForm | None = None


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The worker has set its service up, and takes batches. By now the service is made of ``files``.

    By api, ``profile`` gives (cost, seconds) of batches with which it has warmed up, and ``results`` what a
    row of them gave, where it is JSON.
    """

    files: list[str] = []
    profile: dict[str, list[tuple[_Cost, _Seconds]]] = {}
    results: dict[str, RowResult] = {}


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The worker could not load, set up or warm up its service, and exits.

    ``traceback`` is that of the user's code, or empty if there is nothing in it to see.
    """

    index: int
    stage: Stage
    message: str
    traceback: str = ""


class Meta(msgspec.Struct, frozen=True):
    """What came with a body: its media type with parameters, the query, and headers in lower case."""

    content_type: str
    query: str = ""
    headers: list[tuple[str, str]] = []


class Batch(msgspec.Struct, tag="batch", frozen=True):
    """Run these requests. Per request: length of its body in bytes, and its rows. ``id`` is for logs.

    ``costs`` is what each request weighs, None if each row weighs 1. The handler is called with rows that
    weigh at most ``limit_rows`` at a time, padded to one of the ``allowed_batch_sizes`` unless that is None;
    the largest of these is at least ``limit_rows``. ``idempotent`` says whether parts of a batch that failed
    may be run again, ``timeout_s`` how long the gateway waits for the reply. ``forms`` is the form of each
    body, or the only one of all; ``metas`` go with :class:`RawForm`. ``accept`` is the media type that all
    callers get; if it is empty, rows. ``raw`` says per request whether it gets the rows of an array raw;
    None: all get JSON. ``left_s`` is per request how many seconds were left for the worker when the batch was
    released, negative if it was late. ``trace`` is ``traceparent`` and ``tracestate`` of the batch's span, if
    it has one.
    """

    batch: int
    api: str
    limit_rows: int
    lengths: list[int]
    rows: list[int]
    allowed_batch_sizes: tuple[int, ...] | None = None
    costs: list[_Cost] | None = None
    idempotent: bool = True
    timeout_s: _Seconds = 60.0
    forms: tuple[Form, ...] = (None,)
    metas: list[Meta] | None = None
    accept: str = ""
    raw: list[bool] | None = None
    id: str = ""
    left_s: list[float] = []
    trace: tuple[str, str] | None = None


class ExceptionReport(msgspec.Struct, frozen=True):
    """An exception that the code of a service raised, and for which ``requests`` requests got 500.

    ``error`` is the name of its class, ``place`` the file and line of the service's code, if there is one.
    ``message`` may quote what clients sent. ``id`` is that of the answers and of the line in the log.
    """

    error: str
    place: str
    message: str
    id: str = ""
    requests: int = 0


class RowPath(msgspec.Struct, frozen=True, array_like=True):
    """A place in the rows of a request: the row, from 0, and names and indexes that lead into it."""

    row: int
    path: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return json_path(self.row, *self.path)


def json_path(*steps: str | int) -> str:
    """A path in a JSON document, in backticks; a step ``...`` is not known."""
    return f"`${''.join(map(_step, steps))}`"


def _step(step: str | int) -> str:
    if step == UNKNOWN_STEP or isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{step!r}]"


class Reply(msgspec.Struct, tag="reply", frozen=True):
    """What became of a batch. Per request: an HTTP status, and the length of its body in bytes.

    The body of a status other than 200 is the reason, as UTF-8 text. ``chunks`` gives (cost, seconds) of
    each call of the handler that worked; ``worked`` says whether all of them did. ``seconds`` is how long the
    worker took for the whole batch. Bodies of status 200 are rows, of which ``forms`` is the form of each
    body, or the only one of all; or whole answers, if ``content_types`` says what each is (with whatever
    status). ``headers`` are the handler's own, where it gave any.

    ``reasons`` has the pieces of each reason that names places, by the position of the request. Only the
    gateway knows where in its body the client wrote them; the reason's own text gives paths as if the body
    were a list of rows.
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


class AnswerHead(msgspec.Struct, frozen=True):
    """What is told of a streamed answer before its first bytes; ``headers`` are the handler's own."""

    status: _Status
    content_type: str
    headers: list[tuple[str, str]] = []


class Piece(msgspec.Struct, tag="piece", frozen=True):
    """The payload is the next bytes of the answer to a batch's only request; the first has the ``head``.

    A :class:`Reply` ends the answer. Its body is empty, unless the handler failed.
    """

    batch: int
    head: AnswerHead | None = None


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Nobody waits for more pieces of a batch, which may have ended already; it is to be replied to soon."""

    batch: int


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """The gateway asks whether a worker is there that waits for a batch."""


class Pong(msgspec.Struct, tag="pong", frozen=True):
    """It is."""


Message = Hello | WarmUp | Ready | Failed | Batch | Reply | Piece | Cancel | Ping | Pong


def compact_forms(forms: Sequence[F]) -> tuple[F, ...]:
    """The forms of bodies as a frame gives them: one if they are alike, else the form of each."""
    # Counting compares identical objects first, and hashes none.
    return tuple(forms[:1] if forms and forms.count(forms[0]) == len(forms) else forms)


def expand_forms(forms: Sequence[F], count: int) -> Sequence[F]:
    """The form of each of so many bodies, from those that a frame gives."""
    return [forms[0]] * count if len(forms) == 1 else forms
