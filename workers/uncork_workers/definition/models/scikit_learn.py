"""scikit-learn's estimators and pipelines, saved with joblib or pickle."""

from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from uncork_workers.definition.adapters.base import Adapter
from uncork_workers.definition.adapters.dataframe import DataFrame
from uncork_workers.definition.adapters.ndarray import NdArray
from uncork_workers.definition.adapters.text import Text
from uncork_workers.definition.models.loading import library, load
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.values import DefinitionError

_SHOWN_CLASSES = 20
_NARROW = "float32"
# How encoders know missing values.
_MISSING = {float, NoneType}


def service(path: Path) -> type[Service]:
    """Load an estimator and return the class that serves it; loading runs whatever code the file names."""
    joblib = library("joblib")
    model = load("joblib", lambda: joblib.load(path))
    if not callable(getattr(model, "predict", None)):
        raise DefinitionError(
            f"it holds a {type(model).__name__}, which has no predict; save a fitted estimator or pipeline"
        )
    adapter, example = _input_of(model)
    fitted = getattr(model, "best_estimator_", model)
    is_boosted = hasattr(fitted, "get_booster") or hasattr(fitted, "booster_")

    def call(method: str, rows: Any) -> Any:
        return _dense(getattr(model, method)(_numbers(rows) if is_boosted else rows))

    class Model(Service):
        only_numbers = is_boosted
        """Whether it refuses columns of objects, which numbers and booleans of several clients become."""

        def setup(self) -> None:
            if hasattr(model, "get_params"):  # the workers share the cores
                model.set_params(
                    **{name: 1 for name in model.get_params() if name.rpartition("__")[2] == "n_jobs"}
                )

        @api(input=adapter, warmup=example)
        def predict(self, rows: Any) -> Any:
            """Return the prediction for each row."""
            return call("predict", rows)

    Model.__doc__ = f"The {type(model).__name__} of {path.name}."
    # hasattr() asks the estimator, whose settings may rule probabilities out.
    if not hasattr(model, "predict_proba"):
        return Model

    def predict_proba(self: Service, rows: Any) -> Any:
        return _by_row(call("predict_proba", rows))

    predict_proba.__doc__ = f"Return the probability of each class{_classes_of(model)}."
    decorate: Callable[[Any], Any] = api(input=adapter, warmup=example)
    return type("Model", (Model,), {"predict_proba": decorate(predict_proba), "__doc__": Model.__doc__})


def _classes_of(model: Any) -> str:
    classes = getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) > _SHOWN_CLASSES:
        return ""
    return f", in this order: {', '.join(map(str, classes.tolist()))}"


def _input_of(model: Any) -> tuple[Adapter, Any]:
    """Return the adapter for what the estimator was fitted on, and an example row if there is a safe one."""
    names, count = (getattr(model, name, None) for name in ("feature_names_in_", "n_features_in_"))
    fitted = getattr(model, "best_estimator_", model)
    if names is not None:
        if _has_categories(fitted):
            raise DefinitionError(
                "it was fitted on columns of the dtype category, which clients cannot send; write a service "
                "class that makes them, and serve FILE.py:SERVICE"
            )
        columns = [str(name) for name in names]
        narrow = columns if _is_narrow(fitted) else ()
        texts = _columns_of_texts(fitted)
        dtypes = dict.fromkeys(narrow, _NARROW) | {name: "str" for name in columns if name in texts}
        return DataFrame(columns=columns, dtypes=dtypes), None
    if count is not None:
        parts = getattr(fitted, "steps", None)
        last = parts[-1][1] if parts and isinstance(parts, list) else fitted
        dtype = _NARROW if _is_narrow(last) else "float64"
        return NdArray(dtype=dtype, shape=(int(count),)), [0.0] * int(count)
    steps = getattr(model, "steps", None)
    if steps and hasattr(steps[0][1], "build_analyzer"):  # a vectorizer of texts
        return Text(), "some text"
    raise DefinitionError(
        f"the {type(model).__name__} has neither feature_names_in_ nor n_features_in_, and does not begin "
        "with a vectorizer of texts; fit it before it is saved, or write a service class"
    )


def _is_narrow(model: Any) -> bool:
    """Return whether an estimator has clusters of float32: K-means predicts for rows of that type only."""
    return str(getattr(getattr(model, "cluster_centers_", None), "dtype", "")) == _NARROW


def _columns_of_texts(model: Any) -> set[str]:
    """Return the columns of which encoders know only texts: a column without texts fails in them."""
    steps = getattr(model, "named_steps", None)
    if isinstance(steps, dict):  # the first of them gets the columns as they are sent
        return _columns_of_texts(next(iter(steps.values())))
    parts = getattr(model, "named_transformers_", None) or getattr(model, "named_transformers", None)
    if isinstance(parts, dict):
        return {name for part in parts.values() for name in _columns_of_texts(part)}
    known, names = getattr(model, "categories_", None), getattr(model, "feature_names_in_", None)
    if not isinstance(known, list) or names is None:
        return set()
    pairs = zip(names, known, strict=False)
    return {str(name) for name, each in pairs if {*map(type, each)} - _MISSING == {str}}


def _has_categories(model: Any) -> bool:
    """Return whether an estimator of XGBoost or LightGBM knows columns by the dtype category only."""
    if hasattr(model, "get_booster"):
        return "c" in (model.get_booster().feature_types or ())
    return bool(getattr(getattr(model, "booster_", None), "pandas_categorical", None))


def _numbers(rows: Any) -> Any:
    """Return rows with columns of objects as numbers."""
    if not hasattr(rows, "dtypes"):
        return rows
    return rows.astype({name: "float64" for name in rows if rows[name].dtype == object})


def _dense(results: Any) -> Any:
    """Return results as they are, but a sparse matrix, as of classifiers of several labels, as an array."""
    return results.toarray() if hasattr(results, "toarray") else results


def _by_row(results: Any) -> Any:
    """Return probabilities by row; estimators of several outputs return a list of tables by output."""
    by_output = isinstance(results, list) and any(getattr(one, "ndim", 0) == 2 for one in results)
    return list(zip(*results, strict=True)) if by_output else results
