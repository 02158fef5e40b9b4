"""Small models, written to files for tests."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

onnx: Any = import_module("onnx")

Value = tuple[str, str, Sequence[int | str] | None]
"""The name, type and shape of an input or output of an ONNX model."""
Node = tuple[str, Sequence[str], str, dict[str, Any]] | tuple[str, Sequence[str], str]
"""An operator, its inputs, its output, and perhaps its attributes."""


def save_onnx(
    file: Path | str,
    *nodes: Node,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[Any] = (),
) -> None:
    """Write an ONNX model. ``constants`` are of the class ``onnx.TensorProto``."""
    helper = onnx.helper

    def described(values: Sequence[Value]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(kind), shape)
            for name, kind, shape in values
        ]

    made = [
        helper.make_node(kind, taken, [given], **(more[0] if more else {}))
        for kind, taken, given, *more in nodes
    ]
    graph = helper.make_graph(made, "small", described(inputs), described(outputs), list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(file).write_bytes(model.SerializeToString())


def save_doubling(file: Path | str, shape: Sequence[int | str]) -> None:
    """Write an ONNX model that doubles floats of a shape."""
    floats = ("x", "FLOAT", shape), ("y", "FLOAT", shape)
    save_onnx(file, ("Add", ["x", "x"], "y"), inputs=floats[:1], outputs=floats[1:])


def save_scaling(file: Path | str) -> None:
    """Write an ONNX model of three inputs: it scales ids, and returns names unchanged."""
    save_onnx(
        file,
        ("Cast", ["ids"], "floats", {"to": 1}),
        ("Mul", ["floats", "scale"], "scaled"),
        ("Identity", ["name"], "same"),
        inputs=[("ids", "INT64", ["n", "length"]), ("scale", "FLOAT", ["n", 1]), ("name", "STRING", ["n"])],
        outputs=[("scaled", "FLOAT", ["n", "length"]), ("same", "STRING", ["n"])],
    )
