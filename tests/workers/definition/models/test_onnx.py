"""ONNX files as services: signatures, batches, and files that cannot be served."""

import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.model_files import onnx, save_doubling, save_onnx, save_scaling
from tests.workers.definition.models.serving import refusal, run, served
from uncork_workers.definition.loading import service_files
from uncork_workers.definition.models.tensors import TEXT, NamedTensors, by_shape


def test_a_single_input_becomes_an_array_of_its_type_and_shape(project: Path) -> None:
    save_doubling("my-doubling_2.onnx", ["batch", 3])

    service, apis = served("my-doubling_2.onnx")
    api = apis["predict"]

    assert type(service).__name__ == "MyDoubling2"
    assert api.description.input == {"kind": "ndarray", "dtype": "float32", "shape": [3], "name": "x"}
    assert api.sample is not None
    assert msgspec.json.decode(api.sample.body) == [0, 0, 0]
    assert run("my-doubling_2.onnx", [1, 2, 3], [4, 5, 6]) == [{"y": [2, 4, 6]}, {"y": [8, 10, 12]}]


def test_several_inputs_become_objects_whose_shapes_may_differ(project: Path) -> None:
    save_scaling("scaling.onnx")
    rows = [
        {"ids": [1, 2], "scale": [2], "name": "a"},
        {"name": "b", "scale": [0.5], "ids": [4]},
        {"ids": [3, 4], "scale": [1], "name": "ü"},
    ]

    assert run("scaling.onnx", *rows) == [
        {"scaled": [2, 4], "same": "a"},
        {"scaled": [2], "same": "b"},
        {"scaled": [3, 4], "same": "ü"},
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"ids": [1], "scale": [1]}, "row 1 lacks 'name'; send 'ids', 'scale', 'name'"),
        ({"ids": [1.5], "scale": [1], "name": "a"}, "'ids': "),
        ({"ids": [1], "scale": [1, 2], "name": "a"}, "'scale': "),
        ({"ids": [1], "scale": [1], "name": 5}, "'name': "),
        ({"ids": [1], "scale": [1], "name": ["a"]}, "'name': "),
        ({"ids": [], "scale": [1], "name": "a"}, "'ids': "),
        ({"ids": [1], "scale": [1], "name": "a", "more": 1}, "row 1 has unknown inputs: 'more'"),
        ([1, 2], "each row must be an object with 'ids', 'scale', 'name': "),
    ],
)
def test_a_wrong_row_fails_alone(project: Path, row: object, says: str) -> None:
    save_scaling("scaling.onnx")
    good = {"ids": [1, 2], "scale": [2], "name": "a"}

    first, wrong, last = run("scaling.onnx", good, row, good)

    assert first == last == {"scaled": [2, 4], "same": "a"}
    assert wrong.startswith(says)


def test_rows_of_one_shape_share_a_call() -> None:
    rows = [{"x": np.full(length, length)} for length in (2, 3, 2)]

    groups = by_shape(rows)

    assert [(places, feed["x"].tolist()) for places, feed in groups] == [
        ([0, 2], [[2, 2], [2, 2]]),
        ([1], [[3, 3, 3]]),
    ]


def test_a_text_changes_neither_the_size_nor_the_end_of_others(project: Path) -> None:
    save_scaling("scaling.onnx")
    texts = ["a", "zero\0", "x" * 2**20]
    rows = NamedTensors({"name": (TEXT, ())}).merge([msgspec.json.encode({"name": one}) for one in texts])

    [(_, feed)] = by_shape(rows)

    assert (feed["name"].dtype, feed["name"].tolist()) == (object, texts)
    found = run("scaling.onnx", *[{"ids": [1], "scale": [1], "name": one} for one in texts])
    assert [row["same"] for row in found] == texts


def test_a_fixed_batch_axis_is_the_only_size_of_calls(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_doubling("fixed.onnx", [4, 2])

    with caplog.at_level(logging.WARNING, "uncork.worker"):
        _, apis = served("fixed.onnx")

    assert apis["predict"].description.settings.allowed_batch_sizes == (4,)
    assert "takes exactly 4 rows in each call; export it with a named first axis" in caplog.text
    assert run("fixed.onnx", [1, 2], allowed_batch_sizes=(4,)) == [{"y": [2, 4]}]


def test_rows_of_each_shape_fill_a_fixed_batch_axis(project: Path) -> None:
    inputs: list[Any] = [(name, "FLOAT", [4, "length"]) for name in ("a", "b")]
    save_onnx("sum.onnx", ("Add", ["a", "b"], "y"), inputs=inputs, outputs=[("y", "FLOAT", [4, "length"])])
    rows = [{"a": [at] * length, "b": [1] * length} for at, length in enumerate((2, 3, 2))]

    found = run("sum.onnx", *rows, allowed_batch_sizes=(4,), idempotent=False)

    assert found == [{"y": [1, 1]}, {"y": [2, 2, 2]}, {"y": [3, 3]}]


def test_open_lengths_have_no_example(project: Path) -> None:
    save_scaling("scaling.onnx")

    _, apis = served("scaling.onnx")

    assert apis["predict"].sample is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [("FLOAT16", 0.5), ("DOUBLE", 0.1), ("BOOL", True), ("INT8", -3), ("UINT64", 2**60), ("STRING", "é")],
)
def test_every_type_arrives_as_the_model_has_it(project: Path, kind: str, value: object) -> None:
    ends: list[Any] = [(name, kind, ["n", 1]) for name in ("x", "y")]
    save_onnx("typed.onnx", ("Identity", ["x"], "y"), inputs=ends[:1], outputs=ends[1:])
    row: Any = {"x": [value]} if kind == "STRING" else [value]

    assert run("typed.onnx", row, row) == [{"y": [value]}] * 2


def external(location: str) -> Any:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def save_external(location: str) -> None:
    floats: list[Any] = [(name, "FLOAT", ["n", 3]) for name in ("x", "y")]
    save_onnx(
        "model.onnx",
        ("Add", ["x", "w"], "y"),
        inputs=floats[:1],
        outputs=floats[1:],
        constants=[external(location)],
    )


def test_weights_next_to_the_model_are_read_and_watched(project: Path) -> None:
    save_external("model.onnx.data")
    np.ones(3, "float32").tofile("model.onnx.data")
    Path("other.onnx").touch()

    assert run("model.onnx", [1, 2, 3]) == [{"y": [2, 3, 4]}]
    assert service_files("model.onnx") == [str(project / name) for name in ("model.onnx", "model.onnx.data")]


@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_weights_elsewhere_are_rejected(project: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    secret = project / "secret"
    np.ones(3, "float32").tofile(secret)
    folder = project / "model"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    monkeypatch.chdir(folder)
    save_external({"above": "../secret", "absolute": str(secret), "link": "link"}[how])

    text = refusal("model.onnx")

    assert text.startswith("model.onnx: ONNX Runtime cannot load it: ")
    assert "external data" in text.lower()


def test_a_file_that_is_no_onnx_model_is_rejected(project: Path) -> None:
    Path("page.onnx").write_text("<html></html>")
    Path("empty.onnx").touch()
    Path("folder.onnx").mkdir()
    os.mkfifo("pipe.onnx")

    assert refusal("page.onnx").startswith("page.onnx: ONNX Runtime cannot load it: ")
    assert refusal("empty.onnx") == "empty.onnx: the file is empty; export the model again"
    assert refusal("missing.onnx") == ("missing.onnx: there is no such file; give the path of a model file")
    for name in ("folder.onnx", "pipe.onnx"):
        assert refusal(name) == f"{name}: this is not a file; give the path of a .onnx file"


def test_a_model_without_an_axis_of_rows_is_rejected(project: Path) -> None:
    save_doubling("single.onnx", [])

    assert refusal("single.onnx") == (
        "single.onnx: input 'x' is a single number, without an axis for the rows of a batch; export the "
        "model with a named first axis, such as 'batch'"
    )


@pytest.mark.parametrize("first", [3, "n"])
def test_inputs_with_different_numbers_of_rows_are_rejected(project: Path, first: int | str) -> None:
    inputs: list[Any] = [("a", "FLOAT", [first, 2]), ("b", "FLOAT", [1, 2])]
    save_onnx("two.onnx", ("Add", ["a", "b"], "y"), inputs=inputs, outputs=[("y", "FLOAT", [first, 2])])

    assert "the first axis of each input must be the rows of the batch, but these axes differ" in refusal(
        "two.onnx"
    )


def test_a_type_that_numpy_lacks_is_rejected(project: Path) -> None:
    ends: list[Any] = [(name, "BFLOAT16", ["n", 1]) for name in ("x", "y")]
    save_onnx("half.onnx", ("Identity", ["x"], "y"), inputs=ends[:1], outputs=ends[1:])

    assert refusal("half.onnx").startswith(
        "half.onnx: input 'x' is a tensor(bfloat16); only these are accepted"
    )


def test_an_old_onnx_runtime_is_rejected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read weights from any file."""
    save_doubling("doubling.onnx", ["n", 3])
    monkeypatch.setattr("onnxruntime.__version__", "1.23.2")

    assert "require onnxruntime 1.24 or newer, got 1.23.2; install it" in refusal("doubling.onnx")
