"""Estimators of scikit-learn as services."""

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from tests.workers.definition.models.serving import refusal, run, served

ROWS = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]


class Bomb:
    """Notes in a file that it has been unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


class Lists:
    """An estimator that somebody wrote, which returns lists by row."""

    n_features_in_ = 2

    def predict(self, rows: Any) -> list[str]:
        return ["up" if row[1] > 0.5 else "no" for row in rows]

    def predict_proba(self, rows: Any) -> list[list[float]]:
        return [[1 - float(row[1]), float(row[1])] for row in rows]


@pytest.mark.parametrize("name", ["bomb.joblib", "bomb.pkl"])
def test_nothing_is_unpickled_without_trust(project: Path, name: str) -> None:
    Path(name).write_bytes(pickle.dumps(Bomb()))

    assert refusal(name) == (
        f"{name}: this is a pickle, which can run any code when it is loaded; give --trust-pickle if you "
        "trust its author, or export the model as ONNX"
    )
    assert not Path("exploded").exists()
    assert "which has no predict" in refusal(name, trust_pickle=True)
    assert Path("exploded").exists()


def test_a_classifier_has_predictions_and_probabilities(project: Path) -> None:
    forest = RandomForestClassifier(n_estimators=3, random_state=0, n_jobs=2).fit(
        ROWS, ["no", "yes", "yes", "no"]
    )
    joblib.dump(forest, "forest.joblib")

    made, apis = served("forest.joblib", trust_pickle=True)

    assert type(made).__name__ == "Forest"
    assert list(apis) == ["predict", "predict_proba"]
    assert apis["predict"].description.input == {"kind": "ndarray", "dtype": "float64", "shape": [2]}
    assert apis["predict"].sample is not None
    assert apis["predict_proba"].description.doc == (
        "Return the probability of each class, in this order: no, yes."
    )
    assert run("forest.joblib", *ROWS, trust_pickle=True) == forest.predict(ROWS).tolist()
    probabilities = run("forest.joblib", *ROWS, api="predict_proba", trust_pickle=True)
    assert probabilities == forest.predict_proba(ROWS).tolist()


def test_workers_share_the_cores(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(RandomForestClassifier(n_estimators=2, n_jobs=2)).fit(ROWS, [0, 1, 1, 0])
    joblib.dump(pipeline, "p.joblib")
    monkeypatch.setattr(joblib, "load", lambda path: pipeline)

    served("p.joblib", trust_pickle=True)

    assert pipeline[0].n_jobs == 1


def test_an_estimator_without_probabilities_has_predictions_only(project: Path) -> None:
    for name, model in (("line", LinearRegression()), ("svc", SVC())):
        joblib.dump(model.fit(ROWS, [0, 1, 1, 0]), f"{name}.joblib")

        _, apis = served(f"{name}.joblib", trust_pickle=True)

        assert list(apis) == ["predict"]


def test_columns_with_names_become_a_table(project: Path) -> None:
    table = pd.DataFrame({"size": [1.0, 2, 3, 4], "color": ["red", "blue", "red", "blue"]})
    columns = ColumnTransformer([("color", OneHotEncoder(), ["color"])], remainder="passthrough")
    joblib.dump(
        make_pipeline(columns, DecisionTreeClassifier(random_state=0)).fit(table, [0, 1, 0, 1]),
        "model.joblib",
    )

    _, apis = served("model.joblib", trust_pickle=True)

    assert apis["predict"].description.input == {"kind": "dataframe", "columns": ["size", "color"]}
    good = {"color": "red", "size": 1}
    right, wrong = run("model.joblib", good, {"color": "red"}, trust_pickle=True)
    assert right == 0
    assert "missing 'size'" in wrong


ONE_HOT = OneHotEncoder(handle_unknown="ignore")


@pytest.mark.parametrize(
    "encoder",
    [
        ONE_HOT,
        make_pipeline(ONE_HOT),
        make_pipeline(SimpleImputer(strategy="most_frequent"), ONE_HOT),
        FeatureUnion([("one", ONE_HOT)]),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ],
)
def test_texts_may_be_missing_from_all_rows(project: Path, encoder: Any) -> None:
    table = pd.DataFrame({"size": [1.0, 2, 3, 4], "kind": ["a", "b"] * 2, "digit": ["1", "2"] * 2})
    columns = ColumnTransformer([("texts", encoder, ["kind", "digit"])], remainder="passthrough")
    model = make_pipeline(columns, DecisionTreeClassifier(random_state=0)).fit(table, [0, 1, 0, 1])
    joblib.dump(model, "model.joblib")
    rows = [{"size": 1, "kind": kind, "digit": digit} for kind in ("b", None) for digit in ("2", None)]

    found = run("model.joblib", *rows, trust_pickle=True)

    assert found == model.predict(pd.DataFrame(rows)).tolist()
    assert found == [run("model.joblib", row, trust_pickle=True)[0] for row in rows]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clusters_get_rows_of_their_own_type(project: Path, dtype: str) -> None:
    """K-means predicts for no other."""
    table = pd.DataFrame(ROWS, columns=["a", "b"], dtype=dtype)
    array = table.to_numpy()
    cases: list[tuple[Any, Any, list[Any]]] = [
        (KMeans(2, random_state=0), array, ROWS),
        (make_pipeline(StandardScaler(), KMeans(2, random_state=0)), array, ROWS),
        (KMeans(2, random_state=0), table, table.to_dict("records")),
    ]
    for at, (model, rows, sent) in enumerate(cases):
        joblib.dump(model.fit(rows), f"clusters{at}.joblib")

        assert run(f"clusters{at}.joblib", *sent, trust_pickle=True) == model.predict(rows).tolist()


def test_texts_go_to_a_vectorizer(project: Path) -> None:
    model = make_pipeline(CountVectorizer(), MultinomialNB()).fit(["good", "bad"], ["up", "down"])
    joblib.dump(model, "texts.joblib")

    assert run("texts.joblib", "good", "bad bad", trust_pickle=True) == ["up", "down"]


def test_probabilities_of_several_outputs_are_by_row(project: Path) -> None:
    targets = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    forest = RandomForestClassifier(n_estimators=3, random_state=0).fit(ROWS, targets)
    joblib.dump(forest, "forest.joblib")

    first, second = forest.predict_proba(ROWS)
    found = run("forest.joblib", *ROWS, api="predict_proba", trust_pickle=True)
    assert found == [list(each) for each in zip(first.tolist(), second.tolist(), strict=True)]


def test_sparse_predictions_of_several_labels_are_sent_as_rows(project: Path) -> None:
    targets = [[0, 1], [1, 0], [1, 1], [0, 0]]
    model = OneVsRestClassifier(DecisionTreeClassifier(random_state=0)).fit(ROWS, csr_matrix(targets))
    joblib.dump(model, "labels.joblib")

    assert hasattr(model.predict(ROWS), "toarray")
    assert run("labels.joblib", *ROWS, trust_pickle=True) == targets


def test_lists_by_row_stay_by_row(project: Path) -> None:
    joblib.dump(Lists(), "lists.joblib")
    rows = [0, 0.25], [0, 1]

    assert run("lists.joblib", *rows, trust_pickle=True) == ["no", "up"]
    probabilities = run("lists.joblib", *rows, api="predict_proba", trust_pickle=True)
    assert probabilities == [[0.75, 0.25], [0, 1]]


def test_a_file_that_holds_no_estimator_is_rejected(project: Path) -> None:
    joblib.dump({"model": 5}, "dict.joblib")
    Path("broken.joblib").write_text("not a pickle")
    joblib.dump(RandomForestClassifier(), "unfitted.joblib")

    assert refusal("dict.joblib", trust_pickle=True) == (
        "dict.joblib: it holds a dict, which has no predict; save a fitted estimator or pipeline"
    )
    assert "joblib cannot load it: " in refusal("broken.joblib", trust_pickle=True)
    assert "has neither feature_names_in_ nor n_features_in_" in refusal("unfitted.joblib", trust_pickle=True)


def test_a_missing_library_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("model.joblib").write_bytes(b"cnot_installed\nThing\n.")

    text = refusal("model.joblib", trust_pickle=True)

    assert "No module named 'not_installed'; install it for the Python that runs the workers" in text
