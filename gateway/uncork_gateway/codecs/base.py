"""The interface of codecs, the gateway's side of a kind of input.

A codec checks the structure of a request, counts its rows, computes their cost, and converts the body to the
form that the worker's adapter of the same kind reads. It runs on the event loop once per request, so it must
be cheap.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from uncork_gateway.codecs.cost import NO_COST, Cost, Weigh, reads_rows
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.protocols.tensor_rows import json_objects, json_rows, values_of
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.forms import ColumnsForm, Form, ListForm, TensorForm, Wanted
from uncork_workers.wire.messages import AnswerHead, Meta, RowPath, json_path
from uncork_workers.wire.schema import JSON
from uncork_workers.wire.tensors import join_columns

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import RequestSpan

# The most bytes of a header in a frame, apart from its name and value.
_BYTES_PER_HEADER = 8
# Less than the objects of a request take.
_FREE_BYTES = 4096


class Sink(Protocol):
    """Receives a streamed response. Its methods must not raise."""

    def started(self, batch: int) -> None:
        """Note that a worker has started the request, as batch number ``batch``."""

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        """Receive the next bytes of the response; ``head`` is None except with the first bytes."""


class Marshalled(msgspec.Struct):
    """A request whose body has been read and whose rows have been counted, ready to submit.

    Attributes:
        body: the rows, in the format that ``form`` names.
        rows: the number of rows.
        key: the batch key; requests with different keys do not share a batch.
        contract: the contract of the API, as of the request's arrival. Part of the batch key.
        accept: the only media type that the client accepts; empty for the default. Part of the batch key.
        group: the text of the request's group; None if the API has no ``group_by``.
        values: the texts of the fields in ``group``; None for fields that the rows do not have.
        parts: the request in parts, if its rows are of several groups (``body`` is empty then), or if it was
            divided to fit.
        divisible: True if a request of many rows runs in parts, so that it leaves room for others.
        parameters: the parameters of V2 as a JSON object; empty if there are none.
        headers: the headers that the handler may read.
        request_id: the request's id, if the handler may read it.
        single: True if the client sent one row without the leading axis; the response then has none either.
        cost: the cost of the rows.
        raw: the format in which the worker writes the results.
        note: the dialect's own data, which it needs to write the response.
        meta: headers and query, for a body that reaches the worker unchanged.
        sink: receives the response if it is streamed.
        span: the request's span if it is traced.
        rest_bytes: the bytes of the client's body that are no rows; the dialect may keep them.
        locate: converts a row's path to a path in the client's body; None if the body is the rows.
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
    contract: int = 0
    accept: str = ""
    group: bytes | None = None
    values: tuple[bytes | None, ...] = ()
    parts: Sequence[Part] = ()
    divisible: bool = False
    parameters: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    request_id: str = ""
    rest_bytes: int = 0

    def came_in(self, size_bytes: int) -> None:
        """Count what the client's body of ``size_bytes`` has besides the rows, if it is large.

        A little, such as the names of inputs, does not count: bodies with equal rows then have equal lengths.
        """
        rest = size_bytes - len(self.body) - len(self.parameters)
        if rest > _FREE_BYTES and self.parts:
            rest -= sum([len(part.payload.body) for part in self.parts])
        if rest > _FREE_BYTES:
            self.rest_bytes = rest

    @property
    def size_bytes(self) -> int:
        """The size of the request: its rows, all else in the client's body, and headers for the handler."""
        size, headers, meta = len(self.body) + len(self.parameters), self.headers, self.meta
        if meta is not None:
            size += len(meta.content_type) + len(meta.query)
            headers += meta.headers
        if headers:
            size += sum([len(name) + len(value) + _BYTES_PER_HEADER for name, value in headers])
        return size + len(self.request_id) + self.rest_bytes

    def path_to(self, place: RowPath) -> str:
        """Return the path in the client's body of a value in the rows, for error messages."""
        if self.locate is not None:
            with suppress(LookupError, ValueError):  # there is no such place
                return self.locate(self, place)
        return json_path(*place.path) if self.single else str(place)

    def json_answer(self, rows: bytes) -> bytes:
        """Return a JSON body for results that are joined by commas: the value itself, or a list."""
        return rows if self.single else b"[%b]" % rows


class Part(NamedTuple):
    """Some rows of a request, by number, as a request of their own."""

    rows: Sequence[int]
    payload: Marshalled


class Codec(Protocol):
    """Reads one kind of input for one API.

    Attributes:
        summary: one or two sentences about the body, for the OpenAPI document.
        one_or_many: True if JSON may be one row, or many rows with a leading axis.
        limits: limits on the rows and values of a request.
    """

    summary: str
    one_or_many: bool
    limits: Limits

    @property
    def accepts(self) -> tuple[str, ...]:
        """Accepted media types; ``*`` accepts any. The first is assumed for bodies without a content type."""

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Check a body's structure and count its rows.

        Raises:
            BadRequest: if the body is malformed, or its cost cannot be computed.
        """

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Combine rows into a request; there is at least one row, and each is valid JSON.

        Raises:
            BadRequest: if the rows do not fit this input, or their cost cannot be computed.
        """

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Convert a tensor, JSON or binary, to a request with a row per entry of its first axis.

        Raises:
            BadRequest: as :meth:`marshal`. The worker checks the values.
        """

    def marshal_columns(self, tensors: Sequence[Tensor]) -> Marshalled:
        """Convert named tensors to a request whose rows are objects with a value from each tensor.

        Raises:
            BadRequest: as :meth:`marshal`.
        """


def check_weighed(tensors: Sequence[Tensor], weigh: Weigh, limits: Limits) -> None:
    """Check how many values and lists are made of a request's tensors, if ``weigh`` reads them as JSON.

    Raises:
        TooMany: if there are too many.
    """
    if reads_rows(weigh):
        # An axis of length 1 takes no bytes of a tensor, but a list around each value.
        limits.check_values(sum([sum(accumulate(_cut_axes(tensor), operator.mul)) for tensor in tensors]))


def _cut_axes(tensor: Tensor) -> Sequence[int]:
    """Return the axes along which :func:`json_rows` makes an object of each value or list."""
    match tensor.form:
        case "nested":
            return tensor.shape[:1]
        case "flat":
            return tensor.shape[:-1] or tensor.shape
    return tensor.shape


def of_tensor(tensor: Tensor, weigh: Weigh, *, key: Hashable = None) -> Marshalled:
    """Convert a checked tensor to a request without re-encoding it; ``weigh`` gets its rows as JSON."""
    rows = tensor.shape[0]
    cost = weigh(json_rows(tensor) if reads_rows(weigh) else [b""] * rows)
    return Marshalled(values_of(tensor), rows=rows, key=key, single=False, cost=cost, form=_form(tensor))


def of_columns(tensors: Sequence[Tensor], weigh: Weigh, *, key: Hashable = None) -> Marshalled:
    """Convert checked tensors to a request without re-encoding them; ``weigh`` gets the rows as JSON.

    Raises:
        BadRequest: if the cost cannot be computed.
    """
    rows = tensors[0].shape[0]
    cost = weigh(json_objects(tensors) if reads_rows(weigh) else [b""] * rows)
    return Marshalled(
        join_columns(map(values_of, tensors)),
        rows=rows,
        key=key,
        single=False,
        cost=cost,
        form=ColumnsForm(tuple([(tensor.name, _form(tensor)) for tensor in tensors])),
    )


def _form(tensor: Tensor) -> TensorForm | ListForm:
    datatype, shape = tensor.datatype, tensor.shape[1:]
    return TensorForm(datatype, shape) if tensor.form == "binary" else ListForm(datatype, shape)
