"""The Open Inference Protocol V2, JSON and binary: parses inference requests, and merges them."""

from collections.abc import Hashable, Iterable, Sequence
from uuid import uuid4

import msgspec

from uncork_gateway.headers import JSON_LENGTH
from uncork_gateway.protocols import v2_replies
from uncork_gateway.protocols.lenient_json import or_null_decoder, read_members, read_structs
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import NULL, Malformed
from uncork_gateway.protocols.tensors import Tensor, check_values, concatenate, cut_rows
from uncork_gateway.protocols.v2_message import (
    Message,
    WireTensor,
    excerpt,
    natural,
    raw_members,
    read,
    read_tensors,
    write,
)
from uncork_gateway.protocols.v2_replies import WHOLE_PARAMETERS, InferReply
from uncork_gateway.protocols.wire import Content, Unmergeable, passing_on

_SEQUENCE = frozenset({"sequence_id", "sequence_start", "sequence_end"})
_SHARED_MEMORY = "shared_memory_"
CLASSIFICATION, _NO_CLASSES = "classification", b"0"
BINARY_OUTPUT = "binary_data_output"
_BOOLEANS = {b"true": True, b"false": False}


class _Input(WireTensor, forbid_unknown_fields=True):
    pass


class _Wanted(msgspec.Struct):
    name: str
    parameters: dict[str, msgspec.Raw] | None = None


_inputs_decoder = msgspec.json.Decoder(list[_Input])
_wanted_decoder: msgspec.json.Decoder[list[_Wanted] | None] = msgspec.json.Decoder(list[_Wanted] | None)


class InferRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An inference request, or a part of one.

    Attributes:
        id: the request's id as raw JSON, if it has one.
        members: all other members except inputs, as raw JSON by name.
        wanted: the outputs that the client names, each with True if it wants that output in binary.
        binary: True if the client wants all other outputs in binary.
        classified: the outputs whose top classes the client wants (Triton's classification).
        parameters: the parameters as raw JSON by name, without ``binary_data_output``.
        rows: the length of the first axis of every input.
        key: the batch key; requests with the same key share calls.
        size_bytes: the size of the body, or of a part's inputs.
    """

    id: bytes | None
    members: dict[str, bytes]
    inputs: list[Tensor]
    wanted: dict[str, bool]
    binary: bool
    classified: list[str]
    parameters: dict[str, bytes]
    rows: int
    key: Hashable
    size_bytes: int

    def wants_binary(self, output: str) -> bool:
        """True if the client wants an output of this name in binary."""
        return self.wanted.get(output, self.binary)


def parse_request(content: Content, limits: Limits = DEFAULT_LIMITS) -> InferRequest:
    """Parse a request.

    Raises:
        BadRequest: if the body is malformed.
        Unmergeable: if the request belongs to a sequence, uses shared memory, has no rows, or its inputs
            differ in their number of rows or have unknown members.
        TooMany: if the rows or values exceed the limits.
    """
    if natural(content.header(JSON_LENGTH) or b"") == 0:
        raise Unmergeable("raw tensors without JSON are not supported; describe the inputs in JSON")
    message = read(content, "inputs", limits)
    parameters = _parameters(message.members)
    binary = _boolean(parameters.pop(BINARY_OUTPUT, b"false"))
    wanted, classified = _wanted(message.members, binary)
    inputs = _inputs(message)
    rows = rows_of(inputs, limits)
    for tensor in inputs:
        # A single row without data carries parameters only.
        if tensor.data or tensor.form == "binary" or rows > 1:
            limits = check_values(tensor, limits)
    return InferRequest(
        id=message.id,
        members=message.members,
        inputs=inputs,
        wanted=wanted,
        binary=binary,
        classified=classified,
        parameters=parameters,
        rows=rows,
        key=(tuple([_tensor_key(tensor) for tensor in inputs]), frozenset(message.members.items())),
        size_bytes=len(content.body),
    )


class V2Wire:
    """Merges and splits along the first axis of tensors; see :class:`Wire`."""

    join = staticmethod(v2_replies.join)

    def parse(self, content: Content) -> InferRequest:
        with passing_on():
            return parse_request(content)

    def cut(self, request: InferRequest, most_rows: int) -> list[InferRequest]:
        if request.rows <= most_rows:
            return [request]
        return [
            msgspec.structs.replace(
                request,
                inputs=inputs,
                rows=rows,
                size_bytes=sum([len(tensor.data) for tensor in inputs]),
            )
            for rows, inputs in cut_rows(request.inputs, request.rows, most_rows)
        ]

    def merge(self, requests: Sequence[InferRequest]) -> Content:
        """Merge requests with the same key into one call, which gets a new id if there are several.

        KServe's server (0.21) answers 500 to binary inputs without an id.
        """
        first = requests[0]
        inputs, request_id = first.inputs, first.id
        if len(requests) > 1:
            request_id = b'"%b"' % uuid4().hex.encode()
            inputs = [
                _merged(tensors) for tensors in zip(*[request.inputs for request in requests], strict=True)
            ]
        return write(first.members, request_id, b"inputs", inputs)

    def split(self, reply: Content, requests: Sequence[InferRequest]) -> list[InferReply]:
        return v2_replies.split(reply, [request.rows for request in requests])

    def render(self, reply: InferReply, request: InferRequest, *, batch_id: str) -> Content:
        """Return the response to one request, with its own id. V2 has no member for the batch id."""
        return write(reply.members, request.id, b"outputs", reply.outputs)


def _inputs(message: Message) -> list[Tensor]:
    try:
        described = read_structs(_inputs_decoder, _Input, message.tensors, "a list of tensors", name="inputs")
    except Malformed as error:
        if "unknown field" in str(error):
            raise Unmergeable(str(error)) from error
        raise
    for tensor in described:
        if tensor.parameters:
            refuse_shared_memory(tensor.name, tensor.parameters)
    return read_tensors(described, message.blocks)


def _parameters(members: dict[str, bytes]) -> dict[str, bytes]:
    """Return a request's parameters; raise Unmergeable if they rule out a shared call."""
    text = members.get("parameters", NULL)
    parameters = raw_members(read_members(text, name="parameters", decoder=or_null_decoder))
    refuse_sequence(parameters)
    return parameters


def _wanted(members: dict[str, bytes], binary: bool) -> tuple[dict[str, bool], list[str]]:
    """Return each requested output, with True if it should be binary, and the outputs to classify."""
    wanted, classified = {}, []
    text = msgspec.Raw(members.get("outputs", NULL))
    for output in read_structs(_wanted_decoder, _Wanted, text, "a list of outputs", name="outputs"):
        parameters = raw_members(output.parameters)
        refuse_shared_memory(output.name, parameters)
        own = parameters.get("binary_data")
        wanted[output.name] = binary if own is None else _boolean(own)
        if parameters.get(CLASSIFICATION, _NO_CLASSES) != _NO_CLASSES:
            classified.append(output.name)
    return wanted, classified


def _boolean(raw: bytes) -> bool:
    if raw not in _BOOLEANS:
        raise Malformed(f"binary_data and binary_data_output must be true or false, got {excerpt(raw)}")
    return _BOOLEANS[raw]


def refuse_sequence(parameters: Iterable[str]) -> None:
    """Raise Unmergeable if a request's parameters make it part of a sequence."""
    for name in parameters:
        if name in _SEQUENCE:
            raise Unmergeable(
                f"parameter {name!r} is not supported: batching does not keep sequences in order"
            )


def refuse_shared_memory(name: str, parameters: Iterable[str]) -> None:
    """Raise Unmergeable if a tensor's parameters say that its data is in shared memory."""
    if any(parameter.startswith(_SHARED_MEMORY) for parameter in parameters):
        raise Unmergeable(f"tensor {name!r}: shared memory is not supported; send the data in the body")


def rows_of(inputs: Sequence[Tensor], limits: Limits = DEFAULT_LIMITS) -> int:
    """Return the length of the first axis, which all inputs must share.

    Raises:
        TooMany: if the length exceeds the limit.
        Unmergeable: if there are no inputs or rows, or the inputs differ in their number of rows.
    """
    if not inputs:
        raise Unmergeable("the request has no inputs")
    rows = {tensor.shape[0] if tensor.shape else 0 for tensor in inputs}
    if len(rows) > 1 or any(0 in tensor.shape for tensor in inputs) or rows == {0}:
        shapes = ", ".join(f"{tensor.name!r} {list(tensor.shape)}" for tensor in inputs)
        raise Unmergeable(
            f"inputs must have the same number of rows, at least 1, and no axis of length 0, got {shapes}"
        )
    limits.check_rows(max(rows))
    return rows.pop()


def _tensor_key(tensor: Tensor) -> Hashable:
    # Tensors without data share calls with each other.
    form = tensor.form if tensor.data else None
    if not tensor.parameters:
        return tensor.name, tensor.datatype, tensor.shape[1:], form
    # With the names, a merged input has only values that clients have sent.
    names, whole = frozenset(tensor.parameters), map(tensor.parameters.get, WHOLE_PARAMETERS)
    return tensor.name, tensor.datatype, tensor.shape[1:], form, names, *whole


def _merged(tensors: Sequence[Tensor]) -> Tensor:
    """Merge one input of several requests; row parameters become lists with a value per request."""
    tensor = concatenate(tensors)
    if not tensor.parameters:
        return tensor
    parameters = {
        name: value
        if name in WHOLE_PARAMETERS
        else b"[%b]" % b",".join([each.parameters[name] for each in tensors])
        for name, value in tensor.parameters.items()
    }
    return msgspec.structs.replace(tensor, parameters=parameters)
