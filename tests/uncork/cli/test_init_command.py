"""``uncork init``: the file that it writes serves what the model file serves."""

import importlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from tests.model_files import save_doubling, save_onnx, save_scaling
from tests.workers.conftest import project
from tests.workers.definition.models.serving import run, served
from tests.workers.definition.models.test_transformers import CLASSIFIER, ENCODER, needs_torch, save, write
from uncork.cli.app import app
from uncork_workers.definition.adapters import DataFrame

__all__ = ["project"]

NUMBERS = np.array([[0.0, 1.0], [1.0, 0.0]] * 20)
TARGETS = [0, 1] * 20
SILENT = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2, "min_data_per_group": 1}


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments], env={"COLUMNS": "250"})


def check_same(model: str, *rows: object, name: str, file: str = "written.py") -> None:
    """Check that the written file serves the same APIs, with the same results."""
    result = init(model, "--output", file, "--trust-pickle")
    assert result.exit_code == 0, result.output
    assert result.output == f"wrote {file}; serve it with: uncork serve {file}:{name}\n"
    _, apis = served(model, trust_pickle=True)
    _, written = served(f"{file}:{name}")
    assert list(written) == list(apis)
    for api, definition in apis.items():
        settings = definition.description.settings
        sizes = settings.allowed_batch_sizes
        assert written[api].description.settings == settings
        assert (written[api].sample is None) == (definition.sample is None)
        if isinstance(definition.adapter, DataFrame):
            assert (written[api].adapter.schema(), written[api].sample) == (
                definition.adapter.schema(),
                definition.sample,
            )
        # Otherwise a search for requests at fault would hide calls that fail.
        fields: dict[str, Any] = {"allowed_batch_sizes": sizes, "idempotent": False}
        expected = run(model, *rows, api=api, trust_pickle=True, **fields)
        assert run(f"{file}:{name}", *rows, api=api, **fields) == expected


def test_onnx_files(project: Path) -> None:
    save_doubling('it\'s """ odd.onnx', ["n", 3])
    check_same('it\'s """ odd.onnx', [1, 2, 3], [4, 5, 6], name="ItSOdd", file="odd_service.py")
    save_doubling("fixed.onnx", [4, 2])
    check_same("fixed.onnx", [1, 2], name="Fixed", file="fixed_service.py")
    save_doubling("image.onnx", ["n", 2, 3])
    check_same("image.onnx", [[1, 2, 3], [4, 5, 6]], name="Image", file="image_service.py")
    save_scaling("scaling.onnx")
    row = {"ids": [1, 2], "scale": [2], "name": "é"}
    longer = {**row, "ids": [1, 2, 3]}
    check_same("scaling.onnx", row, longer, row, name="Scaling", file="scaling_service.py")
    inputs: list[Any] = [("a", "FLOAT", ["n", 2]), ("b", "FLOAT", ["n", 2])]
    save_onnx("pair.onnx", ("Add", ["a", "b"], "y"), inputs=inputs, outputs=[("y", "FLOAT", ["n", 2])])
    check_same("pair.onnx", {"a": [1, 2], "b": [3, 4]}, name="Pair", file="pair_service.py")
    inputs = [(name, "FLOAT", [4, "length"]) for name in ("a", "b")]
    save_onnx("sum.onnx", ("Add", ["a", "b"], "y"), inputs=inputs, outputs=[("y", "FLOAT", [4, "length"])])
    sums = [{"a": [at] * length, "b": [1] * length} for at, length in enumerate((2, 3, 2))]
    check_same("sum.onnx", *sums, name="Sum", file="sum_service.py")


def test_a_long_text_takes_no_memory_for_each_of_its_neighbours(project: Path) -> None:
    texts: list[Any] = [(name, "STRING", ["n", "length"]) for name in ("x", "y")]
    save_onnx("texts.onnx", ("Identity", ["x"], "y"), inputs=texts[:1], outputs=texts[1:])
    row = {"x": ["x" * 2**20, *["a"] * 49]}

    tracemalloc.start()
    check_same("texts.onnx", row, name="Texts")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 100 * 2**20


def test_a_model_in_another_folder_is_named_by_its_whole_path(project: Path) -> None:
    Path("models").mkdir()
    Path("code").mkdir()
    save_doubling("models/m.onnx", ["n", 3])

    check_same("models/m.onnx", [1, 2, 3], name="M", file="code/other.py")
    check_same("models/m.onnx", [1, 2, 3], name="M", file="above.py")

    assert repr(str(project / "models/m.onnx")) in Path("code/other.py").read_text()
    assert "Path(__file__).parent / 'models/m.onnx'" in Path("above.py").read_text()


def test_estimators(project: Path) -> None:
    joblib.dump(DecisionTreeClassifier(random_state=0).fit(NUMBERS, TARGETS), "array.joblib")
    check_same("array.joblib", [0, 1], [1, 0.5], name="Array", file="array_service.py")
    both = np.column_stack([TARGETS, TARGETS[::-1]])
    joblib.dump(DecisionTreeClassifier(random_state=0).fit(NUMBERS, both), "both.joblib")
    check_same("both.joblib", [0, 1], [0, 1], name="Both", file="both_service.py")
    texts = make_pipeline(CountVectorizer(), DecisionTreeClassifier(random_state=0))
    joblib.dump(texts.fit(["good day", "bad day"] * 20, TARGETS), "texts.joblib")
    check_same("texts.joblib", "good", "bad", name="Texts", file="texts_service.py")
    several = OneVsRestClassifier(DecisionTreeClassifier(random_state=0)).fit(NUMBERS, csr_matrix(both))
    joblib.dump(several, "sparse.joblib")
    check_same("sparse.joblib", [0, 1], [1, 0], name="Sparse", file="sparse_service.py")
    table = pd.DataFrame(NUMBERS, columns=["a", "b"])
    joblib.dump(DecisionTreeClassifier(random_state=0).fit(table, TARGETS), "table.pkl")
    check_same("table.pkl", {"a": 1, "b": 0.5}, {"b": 1, "a": 0}, name="Table", file="table_service.py")


def test_boosters(project: Path) -> None:
    xgboost: Any = importlib.import_module("xgboost")
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(NUMBERS, TARGETS), 2)
    booster.save_model("all.json")
    booster.set_attr(best_iteration="0")
    booster.save_model("x.json")
    check_same("all.json", [0, 1], name="All", file="all_service.py")
    check_same("x.json", [0, 1], [1, 0.5], name="X", file="x_service.py")
    linear = xgboost.train({"nthread": 1, "booster": "gblinear"}, xgboost.DMatrix(NUMBERS, TARGETS), 2)
    linear.save_model("linear.ubj")
    check_same("linear.ubj", [0, 1], [1, 0.5], name="Linear", file="linear_service.py")
    table = pd.DataFrame({"n": NUMBERS[:, 0], "kind": pd.Categorical(["x", "y"] * 20)})
    lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 2).save_model("l.txt")
    rows = [{"n": 1, "kind": one} for one in ("y", "x", "z")]
    check_same("l.txt", *rows, name="L", file="l_service.py")
    table["kind"] = pd.Categorical(["1", "2"] * 20)
    lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 2).save_model("digits.txt")
    check_same("digits.txt", {"n": 1, "kind": "2"}, name="Digits", file="digits_service.py")
    table["kind"] = pd.Categorical([True, False] * 20)
    lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 2).save_model("truths.txt")
    truths = [{"n": 1, "kind": one} for one in (1, True, None, False)]
    check_same("truths.txt", *truths, name="Truths", file="truths_service.py")


@needs_torch
@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_text_models(project: Path, kind: str) -> None:
    save(kind)
    check_same("bert-tiny", "good day", "bad", name="BertTiny", file=f"{kind.lower()}_service.py")


@needs_torch
def test_cross_encoders(project: Path) -> None:
    save("BertForSequenceClassification", num_labels=1)
    pairs = [{"query": "good", "text": text} for text in ("good day", "bad")]
    check_same("bert-tiny", *pairs, name="BertTiny")


@needs_torch
def test_texts_with_several_labels(project: Path) -> None:
    save("BertForSequenceClassification", num_labels=3, problem_type="multi_label_classification")
    check_same("bert-tiny", "good day", "bad", name="BertTiny")


def test_the_scores_of_several_labels_are_independent(project: Path) -> None:
    write("config.json", {**CLASSIFIER, "problem_type": "multi_label_classification"})
    write("model.safetensors", "")

    assert init("bert-tiny").exit_code == 0

    text = Path("service.py").read_text()
    compile(text, "service.py", "exec")
    assert "scores = output.logits.float().sigmoid()" in text
    assert "if one > 0.5] for row in scores.tolist()]" in text
    assert "softmax" not in text


def write_pooling() -> None:
    write("modules.json", [{"type": "sentence_transformers.models.Pooling"}])
    write("1_Pooling/config.json", {"pooling_mode": "mean"})
    write("sentence_bert_config.json", {"max_seq_length": 2})


@needs_torch
def test_texts_and_tokens_are_cut_where_sentence_transformers_say(project: Path) -> None:
    save("BertModel")
    check_same("bert-tiny", "good", [2, 3, 4, 2, 3], name="BertTiny", file="whole.py")
    write_pooling()
    check_same("bert-tiny", "good day bad", [2, 3, 4, 2, 3], name="BertTiny")


def test_the_length_of_sentence_transformers_is_written(project: Path) -> None:
    write("config.json", ENCODER)
    write("model.safetensors", "")
    write_pooling()

    assert init("bert-tiny").exit_code == 0

    text = Path("service.py").read_text()
    compile(text, "service.py", "exec")
    assert "row[:2] if isinstance(row, list)" in text
    assert "truncation=True, max_length=2)" in text
    assert 'self.tokenizer.padding_side = "right"' in text


TEXT_MODELS = [ENCODER, CLASSIFIER, {**CLASSIFIER, "id2label": {"0": "LABEL_0"}}]


@needs_torch
@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_texts_are_cut_where_only_the_model_says(project: Path, kind: str) -> None:
    save(kind, max_position_embeddings=5)
    settings = json.loads(Path("bert-tiny/tokenizer_config.json").read_text())
    write("tokenizer_config.json", {**settings, "model_max_length": 10**30})
    check_same("bert-tiny", "good day bad day good bad", name="BertTiny", file=f"{kind.lower()}_cut.py")


@pytest.mark.parametrize("config", TEXT_MODELS)
@pytest.mark.parametrize(("limit", "most"), [(None, 512), (10**30, 512), (256, 256), (8192, 514)])
def test_the_length_of_texts_is_written(
    project: Path, config: dict[str, object], limit: int | None, most: int
) -> None:
    """A tokenizer without a limit would cut nothing; its file may be large."""
    tokens = {"added_tokens_decoder": "x" * 2**20}
    write("config.json", {**config, "max_position_embeddings": 514})
    write("tokenizer_config.json", tokens if limit is None else {"model_max_length": limit, **tokens})
    write("model.safetensors", "")

    assert init("bert-tiny").exit_code == 0

    assert f", truncation=True, max_length={most})" in Path("service.py").read_text()


@pytest.mark.parametrize("config", TEXT_MODELS)
def test_text_models_are_written_without_their_libraries(project: Path, config: object) -> None:
    write("config.json", config)
    write("model.safetensors", "")

    assert init("bert-tiny").exit_code == 0

    compile(Path("service.py").read_text(), "service.py", "exec")


def test_what_it_refuses(project: Path) -> None:
    save_doubling("a.onnx", ["n", 3])
    Path("service.py").write_text("mine")
    joblib.dump({}, "b.joblib")

    for arguments, code, says in (
        (["a.onnx"], 2, "uncork init: service.py exists; give another file with --output"),
        (["a.onnx", "--output", "no/s.py"], 1, "cannot write no/s.py: No such file or directory"),
        (["service.py:A"], 2, "'service.py:A' is no model; give a model file such as model.onnx"),
        (["b.joblib"], 2, "b.joblib: this is a pickle, which can run any code when it is loaded"),
        (["c.onnx"], 2, "c.onnx: there is no such file"),
    ):
        result = init(*arguments)
        assert (result.exit_code, says in " ".join(result.output.split())) == (code, True), result.output
    assert Path("service.py").read_text() == "mine"
