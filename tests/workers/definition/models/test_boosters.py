"""Models of XGBoost and LightGBM as services."""

from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest

from tests.workers.definition.models.serving import refusal, run, served

xgboost: Any = import_module("xgboost")

CHANCE = np.random.default_rng(0)
NUMBERS = CHANCE.random((200, 3))
TARGETS = NUMBERS[:, 0] > 0.5
SILENT = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2, "min_data_per_group": 1}
ROWS = [[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]]


def boosted(data: Any, **settings: Any) -> Any:
    parameters = {"objective": "binary:logistic", "nthread": 1, **settings}
    return xgboost.train(parameters, xgboost.DMatrix(data, TARGETS), 3)


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_an_xgboost_model_is_served(project: Path, name: str) -> None:
    booster = boosted(NUMBERS)
    booster.save_model(name)

    _, apis = served(name)

    assert apis["predict"].description.input == {"kind": "ndarray", "dtype": "float64", "shape": [3]}
    assert run(name, *ROWS) == pytest.approx(booster.inplace_predict(np.array(ROWS)).tolist())


def test_rounds_after_the_best_are_not_used(project: Path) -> None:
    booster = boosted(NUMBERS)
    booster.set_attr(best_iteration="1")
    booster.save_model("model.json")

    expected = booster.inplace_predict(np.array(ROWS), iteration_range=(0, 2)).tolist()
    assert run("model.json", *ROWS) == pytest.approx(expected)
    assert expected != pytest.approx(booster.inplace_predict(np.array(ROWS)).tolist())


@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
def test_a_linear_xgboost_model_is_served(project: Path, names: list[str] | None) -> None:
    table = NUMBERS if names is None else pd.DataFrame(NUMBERS, columns=names)
    booster = boosted(table, booster="gblinear")
    booster.set_attr(best_iteration="1")
    booster.save_model("model.json")

    rows = ROWS if names is None else [dict(zip(names, row, strict=True)) for row in ROWS]
    found = run("model.json", *rows)

    expected = booster.predict(xgboost.DMatrix(np.array(ROWS)), validate_features=False)
    assert found == pytest.approx(expected.tolist())


def test_an_xgboost_model_with_names_takes_a_table(project: Path) -> None:
    booster = boosted(pd.DataFrame(NUMBERS, columns=["a", "b", "c"]))
    booster.save_model("model.json")

    found = run("model.json", {"c": 0.3, "a": 0.1, "b": 0.2}, {"a": 0.9, "b": None, "c": 0.7})

    expected = booster.inplace_predict(
        np.array([[0.1, 0.2, 0.3], [0.9, np.nan, 0.7]]), validate_features=False
    )
    assert found == pytest.approx(expected.tolist())


def test_categories_of_xgboost_are_rejected(project: Path) -> None:
    table = pd.DataFrame({"a": pd.Categorical(["x", "y"] * 100), "b": NUMBERS[:, 0]})
    data = xgboost.DMatrix(table, TARGETS, enable_categorical=True)
    xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 2).save_model("model.json")

    assert refusal("model.json").startswith("model.json: it has categorical features, whose codes")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.json", b'{"a": 1}', "Object missing required field `learner`"),
        ("model.json", b"[1, 2]", "Expected `object`, got `array`"),
        ("model.json", b"<html>", "JSON is malformed"),
        ("model.json", b"[" * 100_000, "this is no XGBoost model"),
        ("model.json", b'{"learner": {}}', "XGBoost cannot load it: "),
        ("model.ubj", b'{"a": 1}', "this is no XGBoost model in UBJSON"),
        ("model.ubj", b"{L\0\0\0\0\0\0\0\7learner{", "XGBoost cannot load it: "),
        (
            "model.txt",
            b"hello\n",
            "this is no LightGBM model, whose first line is 'tree'; this one begins with b'hello'",
        ),
        ("model.txt", b"tree\nand nothing", "LightGBM cannot load it: "),
    ],
)
def test_other_files_are_rejected(project: Path, name: str, content: bytes, says: str) -> None:
    Path(name).write_bytes(content)

    assert says in refusal(name)


def test_a_lightgbm_model_is_served(project: Path) -> None:
    booster = lightgbm.train(SILENT, lightgbm.Dataset(NUMBERS, TARGETS), 3)
    booster.save_model("model.txt")

    _, apis = served("model.txt")

    assert apis["predict"].description.input == {"kind": "ndarray", "dtype": "float64", "shape": [3]}
    assert run("model.txt", *ROWS) == pytest.approx(np.asarray(booster.predict(np.array(ROWS))).tolist())


@pytest.mark.parametrize("categories", [["x", "y"], [1, 2]])
def test_categories_of_lightgbm_are_those_of_the_training(project: Path, categories: list[Any]) -> None:
    table = pd.DataFrame(
        {"number": NUMBERS[:, 1], "kind": pd.Categorical([categories[one] for one in TARGETS * 1])}
    )
    booster = lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 3)
    booster.save_model("model.txt")

    _, apis = served("model.txt")
    rows = [{"number": 0.5, "kind": one} for one in (*categories[::-1], categories[0])]
    found = run("model.txt", *rows)

    expected = np.asarray(booster.predict(table.loc[[TARGETS.argmax(), TARGETS.argmin()]])).tolist()
    assert found == pytest.approx([*expected, expected[1]])
    assert expected[0] != expected[1]
    assert apis["predict"].sample is not None
    [alone] = run("model.txt", rows[0])
    assert alone == found[0]


@pytest.mark.parametrize(
    "estimator",
    [
        xgboost.XGBClassifier(n_estimators=2, n_jobs=1, enable_categorical=True),
        lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbosity=-1),
    ],
)
def test_estimators_of_categories_are_rejected(project: Path, estimator: Any) -> None:
    table = pd.DataFrame({"kind": pd.Categorical(["x", "y"] * 100), "number": NUMBERS[:, 0]})
    joblib.dump(estimator.fit(table, TARGETS * 1), "model.joblib")
    joblib.dump(estimator.fit(table[["number"]], TARGETS * 1), "numbers.joblib")

    assert refusal("model.joblib", trust_pickle=True).startswith(
        "model.joblib: it was fitted on columns of the dtype category, which clients cannot send; write a "
    )
    _, apis = served("numbers.joblib", trust_pickle=True)
    assert apis["predict"].description.input == {"kind": "dataframe", "columns": ["number"]}


@pytest.mark.parametrize("value", [0, 1])
def test_a_truth_value_changes_no_category_of_another_row(project: Path, value: int) -> None:
    table = pd.DataFrame({"number": NUMBERS[:, 1], "kind": pd.Categorical(TARGETS * 1)})
    lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 3).save_model("model.txt")
    row = {"number": 0.5, "kind": value}

    wrong, right = run("model.txt", {**row, "kind": bool(value)}, row)

    assert "column 'kind' must be float64, each value a number or missing, got " in str(wrong)
    assert [right] == run("model.txt", row)


@pytest.mark.parametrize("other", [1, 0, "x", None])
def test_another_value_changes_no_truth_value(project: Path, other: object) -> None:
    table = pd.DataFrame({"number": NUMBERS[:, 1], "flag": pd.Categorical(TARGETS)})
    lightgbm.train(SILENT, lightgbm.Dataset(table, TARGETS), 3).save_model("model.txt")
    rows = [{"number": 0.5, "flag": flag} for flag in (other, True, False)]

    found = run("model.txt", *rows)

    assert found == [run("model.txt", row)[0] for row in rows]
    assert found[1] != found[2]
    assert found[1:] == run("model.txt", {**rows[0], "flag": 1}, {**rows[0], "flag": 0})


@pytest.mark.parametrize("estimator", [xgboost.XGBClassifier, lightgbm.LGBMClassifier])
def test_a_missing_value_fails_no_truth_value_of_another_row(project: Path, estimator: Any) -> None:
    table = pd.DataFrame({"number": NUMBERS[:, 1], "flag": TARGETS * 1.0})
    joblib.dump(estimator(n_estimators=2, n_jobs=1).fit(table, TARGETS), "model.joblib")
    rows = [{"number": 0.5, "flag": flag} for flag in (True, None, 0.0)]

    for api in ("predict", "predict_proba"):
        found = run("model.joblib", *rows, api=api, trust_pickle=True, idempotent=False)
        assert found == [run("model.joblib", row, api=api, trust_pickle=True)[0] for row in rows]


def test_categories_that_the_file_lacks_are_rejected(project: Path) -> None:
    table = pd.DataFrame({"code": TARGETS * 1, "kind": pd.Categorical(["x", "y"] * 100)})
    data = lightgbm.Dataset(table, TARGETS, categorical_feature=["code", "kind"])
    lightgbm.train(SILENT, data, 3).save_model("model.txt")

    assert refusal("model.txt").startswith(
        "model.txt: 2 of its features are categorical, but the file has the categories of 1; "
    )
