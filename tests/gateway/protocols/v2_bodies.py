"""Requests of the Open Inference Protocol V2, and an independent server."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.gateway.codecs.bodies import SPACES
from uncork_gateway.protocols.wire import Content

HEADER = b"inference-header-content-length"
ITEM_BYTES = {"BOOL": 1, "INT8": 1, "INT16": 2, "BF16": 2, "FP32": 4, "INT64": 8, "UINT64": 8, "FP64": 8}
# Numbers that parsing and rewriting would change.
_NUMBERS = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "1e400",
    "2.50",
    "9007199254740993",
    "18446744073709551615",
    "1E-2",
    "null",
]
_STRINGS = st.text(alphabet='ab,[]{}"\\é\n ', max_size=4).flatmap(
    lambda text: st.booleans().map(lambda ascii_only: json.dumps(text, ensure_ascii=ascii_only))
)


class Number(NamedTuple):
    """A number with its text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Written:
    """A tensor; ``items`` are JSON texts, or bytes of elements if the form is binary."""

    name: str
    datatype: str
    inner: Sequence[int]
    form: str
    items: Sequence[Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    space: str = ""

    @property
    def shape(self) -> list[int]:
        return [len(self.items) // math.prod(self.inner), *self.inner]

    def described(self) -> str:
        parameters = dict(self.parameters)
        if self.form == "binary":
            parameters["binary_data_size"] = len(self.block())
        members = [
            f'"name": {json.dumps(self.name)}',
            f'"shape": {self.shape}',
            f'"datatype":"{self.datatype}"',
        ]
        members += [f'"parameters":{json.dumps(parameters)}'] if parameters else []
        if self.form != "binary":
            shape = self.shape if self.form == "nested" else [len(self.items)]
            members.append(f'"data":{self._list(list(self.items), shape)}')
        return "{" + ",".join(members) + "}"

    def block(self) -> bytes:
        """The bytes of the tensor after the JSON."""
        if self.form != "binary":
            return b""
        if self.datatype == "BYTES":
            return b"".join(len(item).to_bytes(4, "little") + item for item in self.items)
        return b"".join(self.items)

    def _list(self, items: list[str], shape: list[int]) -> str:
        if len(shape) > 1:
            step = math.prod(shape[1:])
            items = [self._list(items[at : at + step], shape[1:]) for at in range(0, len(items), step)]
        return f"{self.space}[{f'{self.space},'.join(items)}{self.space}]"


def body(key: str, tensors: Sequence[Written], **members: Any) -> Content:
    described = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items()]
    described.append(f'"{key}": [{",".join(tensor.described() for tensor in tensors)}]')
    text = ("{" + ", ".join(described) + "}").encode()
    if all(tensor.form != "binary" for tensor in tensors):
        return Content(text)
    return Content(
        text + b"".join(tensor.block() for tensor in tensors), ((HEADER, str(len(text)).encode()),)
    )


def request(*tensors: Written, **members: Any) -> Content:
    return body("inputs", tensors, **members)


def ints(*values: Any, inner: Sequence[int] = (), form: str = "flat", **others: Any) -> Written:
    """A JSON tensor of integers."""
    items = [json.dumps(value) for value in values]
    return Written(
        **{"name": "x", "datatype": "INT64", "inner": inner, "form": form, "items": items, **others}
    )


def read(content: Content, key: str) -> tuple[dict[str, Any], list[Written]]:
    """Return the other members, and the tensors; numbers keep their text."""
    length = int(content.header(HEADER) or len(content.body))
    members = _loads(content.body[:length].decode())
    blocks = content.body[length:]
    tensors = []
    for tensor in members.pop(key):
        parameters = tensor.get("parameters", {})
        size = parameters.pop("binary_data_size", None)
        if size is None:
            items, nested = tensor["data"], False
            while items and isinstance(items[0], list):
                items, nested = [item for part in items for item in part], True
            form = "nested" if nested else "flat"
        else:
            items, form = _elements(blocks[: int(size.text)], tensor["datatype"]), "binary"
            blocks = blocks[int(size.text) :]
        written = Written(
            name=tensor["name"],
            datatype=tensor["datatype"],
            inner=[int(length.text) for length in tensor["shape"][1:]],
            form=form,
            items=items,
            parameters=parameters,
        )
        assert written.shape[0] == int(tensor["shape"][0].text)
        tensors.append(written)
    assert not blocks
    return members, tensors


def serve(call: Content, outputs: Sequence[str], *, with_bias: bool = False) -> Content:
    """A model that turns every row of its inputs round; a bias of one row for all is another output.

    ``outputs`` are the forms in which to answer for inputs in JSON.
    """
    members, inputs = read(call, "inputs")
    answers = []
    for tensor, form in zip(inputs, outputs, strict=True):
        step = math.prod(tensor.inner)
        items = [
            item for at in range(0, len(tensor.items), step) for item in tensor.items[at : at + step][::-1]
        ]
        if tensor.form != "binary":
            items = [_dumps(item) for item in items]
        form = "binary" if tensor.form == "binary" else form if tensor.inner else "flat"
        answers.append(replace(tensor, name="of " + tensor.name, items=items, form=form, parameters={}))
    if with_bias:
        answers.append(ints(7, 8, inner=[2], name="bias"))
    echoed = {name: json.loads(_dumps(value)) for name, value in members.items() if name == "id"}
    return body("outputs", answers, **echoed, model_name="m", parameters={"took": 1.5})


@st.composite
def mergeable(draw: st.DrawFn, *, least_rows: int = 1) -> list[list[Written]]:
    """The inputs of requests that may share a call."""
    counts = draw(st.lists(st.integers(least_rows, least_rows + 3), min_size=1, max_size=4))
    requests: list[list[Written]] = [[] for _ in counts]
    for number in range(draw(st.integers(1, 3))):
        datatype = draw(st.sampled_from([*ITEM_BYTES, "BYTES"]))
        inner = draw(st.lists(st.integers(1, 3), max_size=3))
        form = draw(st.sampled_from(["flat", "nested", "binary"] if inner else ["flat", "binary"]))
        for inputs, rows in zip(requests, counts, strict=True):
            size = rows * math.prod(inner)
            inputs.append(
                Written(
                    name=f"input {number}",
                    datatype=datatype,
                    inner=inner,
                    form=form,
                    items=draw(st.lists(_items(datatype, form), min_size=size, max_size=size)),
                    space=draw(SPACES),
                )
            )
    return requests


def _items(datatype: str, form: str) -> st.SearchStrategy[Any]:
    if form != "binary":
        return _STRINGS if datatype == "BYTES" else st.sampled_from(_NUMBERS)
    if datatype == "BYTES":
        return st.binary(max_size=5)
    return st.binary(min_size=ITEM_BYTES[datatype], max_size=ITEM_BYTES[datatype])


def _loads(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)


def _dumps(value: Any) -> str:
    return value.text if isinstance(value, Number) else json.dumps(value)


def _elements(block: bytes, datatype: str) -> list[bytes]:
    if datatype != "BYTES":
        size = ITEM_BYTES[datatype]
        return [block[at : at + size] for at in range(0, len(block), size)]
    elements = []
    while block:
        length = int.from_bytes(block[:4], "little")
        elements.append(block[4 : 4 + length])
        block = block[4 + length :]
    return elements
