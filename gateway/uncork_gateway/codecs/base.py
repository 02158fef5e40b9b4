"""What a codec is: the gateway's half of one kind of input.

It checks the structure of a request, counts and weighs its rows, and brings it to the form in which the
adapter of the same kind at the worker takes it; on the way back it turns the rows of the answer into the
client's form. It must be cheap: it runs on the event loop, once per request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from uncork_gateway.interfaces import Span
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.frames import AnswerHead, Form, Meta, Place, TensorForm, json_path
from uncork_workers.wire.schema import JSON


class Sink(Protocol):
    """Takes an answer that comes in pieces. It must not raise."""

    def started(self, batch: int, cancel: Callable[[], None]) -> None:
        """A worker has been given the request, as a batch of its own; ``cancel`` tells it to stop."""

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        """The next bytes of the answer; the first with a head."""


class Marshalled(NamedTuple):
    """A request ready for the dispatcher.

    ``form`` says how ``body`` is written. ``key`` separates requests that must not share a batch. ``single``
    says that the client sent one row without the leading axis, and gets its answer so. ``cost`` is what all
    its rows weigh together; None if the api gives no cost. ``raw`` says that the client takes the rows of an
    array raw, else as JSON. ``note`` is what the client's dialect wants to know again when it writes the
    answer. ``meta`` goes with a body as the client sent it. ``sink`` is who takes the answer, if it is
    streamed. ``span`` is the request's, if it is traced.
    ``locate`` gives the path in the client's body of a place in the rows; None if the body is the rows.
    """

    body: bytes
    rows: int
    key: Hashable = None
    single: bool = True
    cost: float | None = None
    form: Form = None
    raw: bool = False
    note: Any = None
    meta: Meta | None = None
    sink: Sink | None = None
    span: Span | None = None
    locate: Callable[[Marshalled, Place], str] | None = None

    def path_to(self, place: Place) -> str:
        """The path in the client's body of a place in the rows."""
        if self.locate is not None:
            with suppress(LookupError, ValueError):  # there is no such place
                return self.locate(self, place)
        return json_path(*place.path) if self.single else str(place)


class AcceptKey(NamedTuple):
    """The batch key of requests whose clients take only one media type."""

    accept: str
    key: Hashable


class Codec(Protocol):
    """One kind of input."""

    @property
    def accepts(self) -> tuple[str, ...]:
        """Media types of bodies that it takes; the first is that of bodies that say none. ``*`` is any."""
        ...

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Check, count and weigh a request.

        Raises:
            BadRequest: if it is malformed, or has nothing to weigh it by.
        """
        ...

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        """Count and weigh rows that are known to be JSON, at least one.

        Raises:
            BadRequest: if they cannot be weighed, or cannot be rows of this input.
        """
        ...

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Count and weigh the rows of a tensor, which is JSON or binary.

        Raises:
            BadRequest: if they cannot be weighed, or cannot be rows of this input.
        """
        ...

    def encode(self, rows: bytes, *, single: bool) -> bytes:
        """The body of an answer from its rows: JSON texts with commas between them."""
        ...


def raw_rows(tensor: Tensor, *, key: Hashable = None) -> Marshalled:
    """Marshal a binary tensor as it is, for an api whose rows are not weighed."""
    form = TensorForm(tensor.datatype, tensor.shape[1:])
    return Marshalled(tensor.data, rows=tensor.shape[0], key=key, single=False, form=form)
