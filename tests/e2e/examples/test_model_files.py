"""Model files that are served without code, to the clients of every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import joblib
import lightgbm
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from sklearn.tree import DecisionTreeClassifier

from tests.e2e.clients.tensorflow import predict
from tests.e2e.server import HTTP, Server, eventually, run_uncork, running, serving
from tests.model_files import save_doubling, save_scaling

pytestmark = pytest.mark.slow

ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
DOUBLED = (2 * ROWS).tolist()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    save_doubling(folder / "doubling.onnx", ["batch", 3])
    with running("serve", "doubling.onnx", "--grpc-port", "0", folder=folder) as started:
        yield started


def tensors(kind: Any, values: np.ndarray[Any, Any], name: str = "x", datatype: str = "FP32") -> Any:
    made = kind.InferInput(name, values.shape, datatype)
    made.set_data_from_numpy(values)
    return made


def test_an_onnx_file_is_served_in_every_protocol(server: Server) -> None:
    own = HTTP.post(f"{server.base}/predict", json=ROWS.tolist())
    v1 = HTTP.post(f"{server.base}/v1/models/doubling:predict", json={"instances": ROWS.tolist()})
    columns = HTTP.post(f"{server.base}/v1/models/doubling:predict", json={"inputs": {"x": ROWS.tolist()}})
    with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
        described = client.get_model_metadata("doubling")
        v2 = client.infer("doubling", [tensors(triton, ROWS)]).as_numpy("y")
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        over_grpc = client.infer("doubling", [tensors(triton_grpc, ROWS)]).as_numpy("y")
    with grpc.insecure_channel(server.grpc) as channel:
        predicted = predict(channel, "doubling", {"x": ROWS}).outputs["y"]

    objects = [{"y": row} for row in DOUBLED]
    assert own.json() == objects
    assert v1.json()["predictions"] == objects
    assert columns.json()["outputs"] == {"y": DOUBLED}
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    assert list(predicted.float_val) == DOUBLED[0] + DOUBLED[1]
    for found in (v2, over_grpc):
        assert found.dtype == np.float32
        assert found.tolist() == DOUBLED


def test_a_model_of_several_inputs_gets_tensors_of_their_names(tmp_path: Path) -> None:
    save_scaling(tmp_path / "scaling.onnx")
    row = {"ids": [1, 2], "scale": [0.5], "name": "a"}
    with serving(str(tmp_path / "scaling.onnx"), "--grpc-port", "0") as server:
        v1 = HTTP.post(f"{server.base}/v1/models/scaling:predict", json={"instances": [row]})
        inputs = (
            ("name", np.array(["a", "b"], object), "BYTES"),
            ("ids", np.array([[1, 2], [3, 4]]), "INT64"),
            ("scale", np.array([[0.5], [2]], np.float32), "FP32"),
        )
        with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
            known = {one["name"]: one for one in client.get_model_metadata("scaling")["inputs"]}
            given = [tensors(triton, values, name, kind) for name, values, kind in inputs]
            result = client.infer("scaling", given)

    assert v1.json()["predictions"] == [{"scaled": [0.5, 1], "same": "a"}]
    assert known["ids"] == {"name": "ids", "datatype": "INT64", "shape": [-1, -1]}
    assert known["name"] == {"name": "name", "datatype": "BYTES", "shape": [-1]}
    assert result.as_numpy("scaled").tolist() == [[0.5, 1], [6, 8]]
    assert result.as_numpy("same").tolist() == [b"a", b"b"]


def test_a_new_version_of_the_file_takes_over(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    save_doubling(file, ["batch", 3])
    with serving(str(file), "--reload") as server:
        save_doubling(tmp_path / "new", ["batch", 2])
        (tmp_path / "new").replace(file)

        eventually(lambda: HTTP.post(f"{server.base}/predict", json=[1, 2]).status_code == 200)


def test_a_pickle_is_served_only_if_it_is_trusted(tmp_path: Path) -> None:
    file = str(tmp_path / "tree.joblib")
    joblib.dump(DecisionTreeClassifier().fit([[0.0], [1.0]], ["no", "yes"]), file)

    ended = run_uncork("serve", file, "--port", "0")
    settings = run_uncork("config", "serve", file, "--trust-pickle")
    with serving(file, "--trust-pickle") as server:
        predicted = HTTP.post(f"{server.base}/predict", json=[[0], [1]]).json()
        probabilities = HTTP.post(f"{server.base}/predict_proba", json=[1]).json()

    assert ended.returncode == 2
    assert "this is a pickle, which can run any code when it is loaded; give --trust-pickle" in ended.stderr
    assert settings.returncode == 0, settings.stderr
    assert predicted == ["no", "yes"]
    assert probabilities == [0, 1]


def test_a_booster_is_served_to_clients_of_tensors(tmp_path: Path) -> None:
    data = lightgbm.Dataset(np.array([[0.0, 1.0], [1.0, 0.0]] * 20), [0, 1] * 20)
    lightgbm.train({"verbosity": -1, "num_threads": 1}, data, 3).save_model(tmp_path / "model.txt")
    values = np.array([[0, 1], [1, 0]], np.float64)
    with (
        serving(str(tmp_path / "model.txt")) as server,
        triton.InferenceServerClient(server.base.removeprefix("http://")) as client,
    ):
        found = client.infer("model", [tensors(triton, values, datatype="FP64")]).as_numpy("output-0")

    assert found[0] < 0.5 < found[1]
