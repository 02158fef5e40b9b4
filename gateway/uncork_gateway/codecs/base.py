"""The interface of codecs, the gateway's half of one kind of input.

A codec checks the structure of a request, counts its rows, computes their cost, and converts the body to the
form that the worker's adapter of the same kind reads. It runs on the event loop once per request, so it must
be cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from uncork_dispatcher import Submission, Waiter
from uncork_gateway.codecs.cost import NO_COST, Cost, Weigh, unweighed
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.protocols.tensor_rows import json_objects, json_rows, values_of
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.messages import (
    AnswerHead,
    ColumnsForm,
    Form,
    ListForm,
    Meta,
    RowPath,
    TensorForm,
    Wanted,
    json_path,
)
from uncork_workers.wire.schema import JSON
from uncork_workers.wire.tensors import join_columns

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import RequestSpan

R = TypeVar("R")


class Sink(Protocol):
    """Receives a streamed answer. It must not raise."""

    def started(self, batch: int, cancel: Callable[[], None]) -> None:
        """Note that a worker runs the request, as a batch of its own; ``cancel`` stops it."""

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        """Receive the next bytes of the answer; the first come with a head."""


# The most bytes of a header in a frame, apart from its name and value.
_BYTES_PER_HEADER = 8


class Marshalled(msgspec.Struct, frozen=True):
    """A request ready for the dispatcher.

    Attributes:
        body: the rows, written as ``form`` says.
        rows: how many there are.
        key: the batch key; requests with different keys do not share a batch.
        single: whether the client sent one row without the leading axis, and gets its answer so.
        cost: of the rows.
        raw: how the worker writes the results.
        note: state of the client's dialect, needed to write the answer.
        meta: headers and query, for a body that travels as the client sent it.
        sink: receives the answer if it is streamed.
        span: the request's span if it is traced.
        locate: returns the path in the client's body of a place in the rows; None if the body is the rows.
    """

    body: bytes
    rows: int
    key: Hashable = None
    single: bool = True
    cost: Cost = NO_COST
    form: Form = None
    raw: Wanted = ""
    note: Any = None
    meta: Meta | None = None
    sink: Sink | None = None
    span: RequestSpan | None = None
    locate: Callable[[Marshalled, RowPath], str] | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of the request in a batch: its body, and the headers that travel with it."""
        if self.meta is None:
            return len(self.body)
        headers = sum([len(name) + len(value) + _BYTES_PER_HEADER for name, value in self.meta.headers])
        return len(self.body) + len(self.meta.content_type) + len(self.meta.query) + headers

    def submission(
        self,
        waiter: Waiter[R],
        api: str,
        *,
        client_timeout_s: float = math.inf,
        source: Hashable = None,
        flow: Hashable = None,
    ) -> Submission[Marshalled, R]:
        """Return the request as the dispatcher takes it."""
        return Submission(
            waiter,
            api,
            self,
            rows=self.rows,
            cost=self.cost.total,
            longest=self.cost.longest,
            size_bytes=self.size_bytes,
            key=self.key,
            client_timeout_s=client_timeout_s,
            source=source,
            flow=flow,
        )

    def path_to(self, place: RowPath) -> str:
        """Return the path in the client's body of a place in the rows."""
        if self.locate is not None:
            with suppress(LookupError, ValueError):  # there is no such place
                return self.locate(self, place)
        return json_path(*place.path) if self.single else str(place)

    def json_answer(self, rows: bytes) -> bytes:
        """Return the JSON body of an answer whose rows are joined by commas: one value, or a list."""
        return rows if self.single else b"[%b]" % rows


class AcceptKey(NamedTuple):
    """The batch key of requests whose clients accept only one media type."""

    accept: str
    key: Hashable


class Codec(Protocol):
    """One kind of input.

    Attributes:
        summary: one or two sentences about the body, for the OpenAPI document.
        one_or_many: whether JSON may be one row, or many with a leading axis.
        limits: on the rows and values of a request.
    """

    summary: str
    one_or_many: bool
    limits: Limits

    @property
    def accepts(self) -> tuple[str, ...]:
        """Accepted media types, ``*`` for any; the first applies to bodies without a content type."""

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Read a body.

        Raises:
            BadRequest: if it is malformed, or its cost cannot be computed.
        """

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Read rows that are known to be valid JSON, at least one.

        Raises:
            BadRequest: if their cost cannot be computed, or they cannot be rows of this input.
        """

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Read the rows of a tensor, which is JSON or binary. The worker checks its values.

        Raises:
            BadRequest: as :meth:`marshal`.
        """

    def marshal_columns(self, tensors: Sequence[Tensor]) -> Marshalled:
        """Read rows that are objects, with a value from each tensor of a name.

        Raises:
            BadRequest: as :meth:`marshal`.
        """


def of_tensor(tensor: Tensor, weigh: Weigh, *, key: Hashable = None) -> Marshalled:
    """Marshal a tensor as it is; the cost of its rows is computed from their JSON."""
    cost = NO_COST if weigh is unweighed else weigh(json_rows(tensor))
    return Marshalled(
        values_of(tensor), rows=tensor.shape[0], key=key, single=False, cost=cost, form=_form(tensor)
    )


def of_columns(tensors: Sequence[Tensor], weigh: Weigh, *, key: Hashable = None) -> Marshalled:
    """Marshal tensors as they are; the cost of their rows is computed from their JSON."""
    cost = NO_COST if weigh is unweighed else weigh(json_objects(tensors))
    return Marshalled(
        join_columns(map(values_of, tensors)),
        rows=tensors[0].shape[0],
        key=key,
        single=False,
        cost=cost,
        form=ColumnsForm(tuple([(tensor.name, _form(tensor)) for tensor in tensors])),
    )


def _form(tensor: Tensor) -> TensorForm | ListForm:
    datatype, shape = tensor.datatype, tensor.shape[1:]
    return TensorForm(datatype, shape) if tensor.form == "binary" else ListForm(datatype, shape)
