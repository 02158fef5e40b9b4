"""The recipes, run with small models; libraries that are large to install are stand-ins."""

from __future__ import annotations

import io
import re
import sys
import time
import wave
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.markdown_pages import DOCS, blocks
from tests.model_files import Node, Value, save_onnx
from uncork import Service, context
from uncork.testing import client

RECIPES = {
    match[1]: block.code
    for block in blocks(DOCS / "guides/recipes.md", "python")
    if (match := re.search(r"^class (\w+)\(Service\)", block.code, re.MULTILINE))
}


class Tensor(np.ndarray):
    """An array with the methods of tensors that the recipes call."""

    def to(self, device: str) -> Tensor:
        assert device == "cpu"
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return np.asarray(self)

    def argmax(self, dim: int) -> Tensor:  # type: ignore[override]
        found: Tensor = np.asarray(self).argmax(axis=dim).view(Tensor)
        return found


class Model:
    """Gives each row its sum; a tokenizer, a transformer and an encoder in one."""

    config = SimpleNamespace(id2label={0: "short", 1: "long"})
    asked: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, name: str = "") -> None:
        self.name = name

    @classmethod
    def from_pretrained(cls, name: str) -> Model:
        return cls(name)

    def eval(self) -> Model:
        return self

    def __call__(self, rows: Any = None, ids: Any = None, **options: Any) -> Any:
        if ids is not None:
            return SimpleNamespace(logits=np.stack([ids < 5, ids >= 5], axis=1).astype(float).view(Tensor))
        if options:
            self.asked.append(options)
            return {"ids": np.array([len(text) for text in rows])}
        return rows.sum(axis=1).view(Tensor)

    def tokenizer(self, texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [[1] * len(text) for text in texts]}

    def encode(self, texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
        self.asked.append(options)
        return np.array([[len(text), 0.5] for text in texts], "float32")


class Ranker:
    """A cross-encoder, whose scores are the lengths of the texts."""

    def __init__(self, name: str, activation_fn: str) -> None:
        assert activation_fn == "sigmoid"

    def predict(self, pairs: list[tuple[str, str]], **options: Any) -> np.ndarray[Any, Any]:
        assert options == {"batch_size": len(pairs), "show_progress_bar": False}
        return np.array([len(text) for _, text in pairs], "float32")


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


TORCH = module(
    "torch",
    cuda=SimpleNamespace(is_available=lambda: False),
    jit=SimpleNamespace(load=lambda path, map_location: Model(path)),
    from_numpy=lambda rows: rows.view(Tensor),
    inference_mode=nullcontext,
    nn=SimpleNamespace(Sigmoid=lambda: "sigmoid"),
)
STAND_INS = [
    TORCH,
    module("transformers", AutoModelForSequenceClassification=Model, AutoTokenizer=Model),
    module("sentence_transformers", SentenceTransformer=Model, CrossEncoder=Ranker),
]


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in STAND_INS:
        monkeypatch.setitem(sys.modules, each.__name__, each)


def recipe(name: str, code: str = "") -> type[Service]:
    made = module("recipe")
    exec(compile(code or RECIPES[name], name, "exec"), vars(made))
    service: type[Service] = vars(made)[name]
    return service


def png(color: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 4), color).save(content, format="png")
    return content.getvalue()


def wav(level: float, frames: int, rate: int = 16_000) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.full(frames, level * 2**15, "<i2").tobytes())
    return content.getvalue()


def test_each_recipe_is_run_here() -> None:
    assert set(RECIPES) == {
        "Forest",
        "Boosted",
        "Classifier",
        "Network",
        "Sentiment",
        "Sentences",
        "Reranker",
        "Photos",
        "Level",
        "Solver",
        "Translator",
    }


def test_scikit_learn() -> None:
    import joblib  # takes a second, as those below
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    iris = load_iris()
    forest = RandomForestClassifier(n_estimators=5, random_state=0).fit(iris.data, iris.target)
    joblib.dump(forest, "forest.joblib")

    with client(recipe("Forest")) as c:
        assert [reply.json() for reply in c.post_all("/predict", json=iris.data[::50].tolist())] == [0, 1, 2]


def test_lightgbm() -> None:
    lightgbm = import_module("lightgbm")
    rows = np.random.default_rng(0).random((100, 10))
    model = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(rows, rows[:, 0]), 2)
    model.save_model("model.txt")

    with client(recipe("Boosted")) as c:
        found = [reply.json() for reply in c.post_all("/predict", json=rows[:3].tolist())]

    np.testing.assert_allclose(found, model.predict(rows[:3]))


def test_xgboost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are comments."""

    class Booster:
        def __init__(self, model_file: str) -> None:
            assert model_file == "model.json"

        def inplace_predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return rows[:, 0].astype("float32")

    monkeypatch.setitem(sys.modules, "xgboost", module("xgboost", Booster=Booster))
    lines = [
        line for line in RECIPES["Boosted"].splitlines() if not re.match(r" +\w.*(Booster|predict\(r)", line)
    ]
    code = (
        "\n".join(lines)
        .replace("# self", "self")
        .replace("# return", "return")
        .replace("lightgbm", "xgboost")
    )

    with client(recipe("Boosted", code)) as c:
        assert c.post("/predict", json=list(range(2, 12))).json() == 2


@pytest.mark.usefixtures("_stand_ins")
def test_pytorch() -> None:
    with client(recipe("Classifier")) as c:
        assert [reply.json() for reply in c.post_all("/predict", json=[[1] * 768, [2] * 768])] == [768, 1536]


def test_onnx_runtime() -> None:
    reduced: Node = ("ReduceMax", ["x"], "y", {"axes": [1], "keepdims": 0})
    save_onnx("model.onnx", reduced, inputs=[("x", "FLOAT", ["batch", 64])], outputs=[("y", "FLOAT", None)])

    with client(recipe("Network")) as c:
        rows = [list(range(64)), list(range(1, 65))]
        assert [reply.json() for reply in c.post_all("/predict", json=rows)] == [63, 64]


@pytest.mark.usefixtures("_stand_ins")
def test_hugging_face() -> None:
    with client(recipe("Sentiment")) as c:
        replies = c.post_all("/classify", json=["abc", "abcdef"])
    with client(recipe("Sentences")) as c:
        vectors = c.post_all("/embed", json=[{"inputs": ["abc"], "normalize": False}, {"inputs": "xyz"}])
        ids = c.post("/v1/embeddings", json={"input": [5]})

    assert [reply.json() for reply in replies] == ["short", "long"]
    assert [reply.json() for reply in vectors] == [[[3, 0.5]], [pytest.approx([0.986, 0.164], abs=1e-3)]]
    assert ids.json()["error"]["message"].startswith("each row must be a JSON string")
    assert Model.asked[-1] == {"batch_size": 2, "show_progress_bar": False}


@pytest.mark.usefixtures("_stand_ins")
def test_reranking() -> None:
    with client(recipe("Reranker")) as c:
        reply = c.post("/v2/rerank", json={"query": "wine", "documents": ["a", "abc"], "top_n": 1})

    assert reply.json()["results"] == [{"index": 1, "relevance_score": 3}]


def test_images() -> None:
    reduced: Node = ("ReduceMean", ["x"], "y", {"axes": [2, 3], "keepdims": 0})
    images: list[Value] = [("x", "FLOAT", ["batch", 3, 224, 224])]
    save_onnx("resnet.onnx", reduced, inputs=images, outputs=[("y", "FLOAT", None)])

    with client(recipe("Photos")) as c:
        requests = [
            httpx.Request("POST", "http://testserver/classify", content=png(color))
            for color in ("red", "blue")
        ]
        assert [c.send(request).json() for request in requests] == [0, 2]


def test_audio() -> None:
    bodies = [wav(0.5, 100), wav(0.25, 400), wav(0.5, 10, rate=8000), b"nothing"]

    with client(recipe("Level")) as c:
        kind = {"content-type": "audio/wav"}
        replies = c.send_all([c.build_request("POST", "/rms", content=body, headers=kind) for body in bodies])

    assert [reply.status_code for reply in replies] == [200, 200, 400, 400]
    assert [reply.json() for reply in replies[:2]] == [0.5, 0.25]


def test_parameters_per_request() -> None:
    """A row without a language is refused; the others are answered in their own."""
    rows = [{"text": "Hello", "language": "de"}, {"text": "Hello", "language": "fr"}, {"text": "Hello"}]

    with client(recipe("Translator")) as c:
        replies = c.post_all("/translate", json=rows)

    assert [reply.status_code for reply in replies] == [200, 200, 400]
    assert [reply.json() for reply in replies[:2]] == ["HELLO", "hello"]


def test_work_that_nobody_waits_for() -> None:
    """One run to its end, and one whose client's time has passed during a step."""
    steps: list[int] = []

    def step(states: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        steps.append(len(states))
        while not context().cancelled:
            time.sleep(0.001)
        return states

    with client(recipe("Solver")) as c:
        assert c.post("/solve", json=[0, 0, 1]).json() == [0, 0, 2.0**-1000]

    class Slow(recipe("Solver")):  # type: ignore[misc]
        def setup(self) -> None:
            self.step = step

    with client(Slow) as c:
        late = c.post("/solve", json=[0, 0, 1], headers={"x-request-timeout-ms": "200"})
        assert (late.status_code, late.json()["reason"]) == (504, "client_deadline")
    assert steps in ([1], [])  # on a busy machine, the time may pass before the handler runs
