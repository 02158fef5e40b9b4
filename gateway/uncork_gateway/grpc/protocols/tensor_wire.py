"""Merges and splits gRPC messages with tensors, for all protocols."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import parse
from uncork_gateway.grpc.protocols.values import REST
from uncork_gateway.protocols.raw_json import Malformed, TooMany
from uncork_gateway.protocols.tensor_replies import TOO_MANY, join_outputs, split_outputs
from uncork_gateway.protocols.tensors import Tensor, concatenate, cut_rows
from uncork_gateway.protocols.wire import Content, Unmergeable, WrongReply, if_certain, passing_on


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A request or a reply, parsed.

    Attributes:
        id: the id of the request; empty if it has none.
        rest: everything but id and tensors, serialized.
        tensors: inputs or outputs, all in binary. Their only parameter is the message's other fields for that
            tensor, serialized.
        typed: True if values are in typed fields.
    """

    id: str = ""
    rest: bytes
    tensors: list[Tensor]
    typed: bool


class TensorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a part of one.

    Attributes:
        message: the message in the form received; None for a part.
        rows: the length of the first axis of every input.
        key: the batch key; requests with the same key share calls.
        size_bytes: the size of the message, or of its inputs if they are larger; of a part, of its inputs.
    """

    message: bytes | None
    parsed: Parsed
    rows: int
    key: Hashable
    size_bytes: int


class TensorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a reply for one request, or for a part of one.

    Attributes:
        parsed: the share; or the serialized message, if the call had only this request.
        rows: the number of rows of the request.
    """

    parsed: Parsed | bytes
    rows: int


class TensorWire(ABC):
    """Merges and splits along the first axis of tensors; see :class:`~uncork_gateway.protocols.wire.Wire`.

    Content is a serialized message, without headers. A request alone in its call, and its reply, pass
    unchanged. Requests with different parameters do not share calls: a parameter of gRPC cannot be a list
    with a value for each request.

    Attributes:
        method: the path of the method.
        request: the class of its requests.
        response: the class of its responses.
    """

    method: bytes
    request: Any
    response: Any

    @abstractmethod
    def read_request(self, message: Any) -> Parsed:
        """Parse a request; the message keeps only the fields for ``rest``.

        Raises:
            BadRequest: if the request is malformed.
            Unmergeable: if the request must be passed on unchanged, alone.
        """

    @abstractmethod
    def read_reply(self, message: Any) -> Parsed:
        """Parse a reply; the message keeps only the fields for ``rest``.

        Raises:
            BadRequest, Unmergeable: if the tensors cannot be split.
        """

    @abstractmethod
    def fill(self, message: Any, parsed: Parsed) -> None:
        """Write id and tensors into a request or a reply that already has all other fields."""

    @abstractmethod
    def model_of(self, message: Any) -> str:
        """Return the model name in a request."""

    def parse(self, content: Content) -> TensorRequest:
        return self.request_of(self.read(content.body), content.body)

    def read(self, message: bytes) -> Any:
        """Parse a request message.

        Raises:
            BadRequest: if the bytes are not such a message.
            TooMany: if it has too many fields.
        """
        return parse(self.request, message)

    def request_of(self, message: Any, serialized: bytes) -> TensorRequest:
        """Convert a message, which must not be used afterwards; raises as :meth:`read_request`."""
        with passing_on():
            parsed = self.read_request(message)
        inputs = [
            (each.name, each.datatype, each.shape[1:], *each.parameters.values()) for each in parsed.tensors
        ]
        return TensorRequest(
            message=serialized,
            parsed=parsed,
            rows=parsed.tensors[0].shape[0],
            key=(self.method, parsed.rest, parsed.typed, *inputs),
            # Values that are repeated, or small integers, take more bytes in binary.
            size_bytes=max(len(serialized), _size(parsed.tensors)),
        )

    def cut(self, request: TensorRequest, most_rows: int) -> list[TensorRequest]:
        if request.rows <= most_rows:
            return [request]
        return [
            TensorRequest(
                message=None,
                parsed=replace(request.parsed, tensors=inputs),
                rows=rows,
                key=request.key,
                size_bytes=_size(inputs),
            )
            for rows, inputs in cut_rows(request.parsed.tensors, request.rows, most_rows)
        ]

    def merge(self, requests: Sequence[TensorRequest]) -> Content:
        """Merge requests with the same key into one call, which gets a new id if there are several."""
        first = requests[0]
        if len(requests) == 1:
            return Content(first.message) if first.message else self._written(self.request, first.parsed)
        inputs = zip(*[request.parsed.tensors for request in requests], strict=True)
        merged = replace(first.parsed, id=uuid4().hex, tensors=list(map(concatenate, inputs)))
        return self._written(self.request, merged)

    def split(self, reply: Content, requests: Sequence[TensorRequest]) -> list[TensorReply]:
        if len(requests) == 1:
            return [TensorReply(parsed=reply.body, rows=requests[0].rows)]
        parsed, rows = self._opened(reply.body), [request.rows for request in requests]
        try:
            shares = split_outputs(parsed.tensors, rows)
        except Malformed as error:
            raise WrongReply(str(error)) from error
        return [
            TensorReply(parsed=replace(parsed, tensors=share), rows=count)
            for share, count in zip(shares, rows, strict=True)
        ]

    def join(self, parts: Sequence[TensorReply]) -> TensorReply:
        if len(parts) == 1:
            return parts[0]
        opened, rows = [self._opened(part.parsed) for part in parts], [part.rows for part in parts]
        if any(_besides_values(each) != _besides_values(opened[0]) for each in opened):
            raise WrongReply("the responses to the parts of a request differ in members other than outputs")
        try:
            outputs, certain = join_outputs([each.tensors for each in opened], rows)
        except Malformed as error:
            raise WrongReply(str(error)) from error
        return if_certain(TensorReply(parsed=replace(opened[0], tensors=outputs), rows=sum(rows)), certain)

    def render(self, reply: TensorReply, request: TensorRequest, *, batch_id: str) -> Content:
        """Return the response to one request, with its own id. The batch id goes into the call's metadata."""
        if isinstance(reply.parsed, bytes):
            return Content(reply.parsed)
        return self._written(self.response, replace(reply.parsed, id=request.parsed.id))

    def _written(self, kind: Any, parsed: Parsed) -> Content:
        message = kind.FromString(parsed.rest)
        self.fill(message, parsed)
        return Content(message.SerializeToString())

    def _opened(self, reply: Parsed | bytes) -> Parsed:
        if isinstance(reply, Parsed):
            return reply
        try:
            return self.read_reply(parse(self.response, reply))
        except TooMany as error:
            raise WrongReply(TOO_MANY) from error
        except (BadRequest, Unmergeable) as error:
            raise WrongReply(str(error)) from error


def _size(tensors: Sequence[Tensor]) -> int:
    return sum([len(tensor.data) for tensor in tensors])


def _besides_values(reply: Parsed) -> tuple[bytes, list[dict[str, bytes]]]:
    """Return the fields that must be equal in the replies to all parts of a request."""
    return reply.rest, [tensor.parameters for tensor in reply.tensors]


def rest_of(message: Any, *fields: str) -> bytes:
    """Serialize a message without some fields: equal messages give equal bytes."""
    for field in fields:
        message.ClearField(field)
    rest: bytes = message.SerializeToString(deterministic=True)
    return rest


def with_rests(tensors: Sequence[Tensor], messages: Iterable[Any], fields: Sequence[str]) -> list[Tensor]:
    """Return tensors with their messages' other fields than ``fields``, serialized, as their parameter."""
    rests = [rest_of(message, *fields) for message in messages]
    return [
        replace(tensor, parameters={REST: rest}) if rest else tensor
        for tensor, rest in zip(tensors, rests, strict=True)
    ]
