"""Model files that are served without code, to the clients of every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import joblib
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from sklearn.tree import DecisionTreeClassifier

from tests.e2e.clients.tensorflow import predict
from tests.e2e.server import HTTP, Server, eventually, run_uncork, running, serving
from tests.model_files import save_doubling

pytestmark = pytest.mark.slow

ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
DOUBLED = (2 * ROWS).tolist()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    save_doubling(folder / "doubling.onnx", ["batch", 3])
    with running("serve", "doubling.onnx", "--grpc-port", "0", folder=folder) as started:
        yield started


def rows(kind: Any) -> Any:
    made = kind.InferInput("x", ROWS.shape, "FP32")
    made.set_data_from_numpy(ROWS)
    return made


def test_an_onnx_file_is_served_in_every_protocol(server: Server) -> None:
    own = HTTP.post(f"{server.base}/predict", json=ROWS.tolist())
    v1 = HTTP.post(f"{server.base}/v1/models/doubling:predict", json={"instances": ROWS.tolist()})
    columns = HTTP.post(f"{server.base}/v1/models/doubling:predict", json={"inputs": {"x": ROWS.tolist()}})
    with triton.InferenceServerClient(server.base.removeprefix("http://")) as client:
        described = client.get_model_metadata("doubling")
        v2 = client.infer("doubling", [rows(triton)]).as_numpy("y")
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        over_grpc = client.infer("doubling", [rows(triton_grpc)]).as_numpy("y")
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
