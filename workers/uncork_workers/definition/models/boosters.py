"""Gradient boosting models of XGBoost and LightGBM, in their own file formats."""

import re
from pathlib import Path
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter
from uncork_workers.definition.adapters.dataframe import DataFrame
from uncork_workers.definition.adapters.ndarray import NdArray
from uncork_workers.definition.models.loading import library, load
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.values import DefinitionError

_HEAD_BYTES = 64
# How LightGBM names features that had no names.
_UNNAMED = re.compile(r"Column_[0-9]+")
_TREES = b"tree"


class _XGBoostFile(msgspec.Struct):
    learner: dict[str, msgspec.Raw]


def xgboost_service(path: Path) -> type[Service]:
    """Load a booster of XGBoost and return the class that serves it."""
    _check_xgboost(path)
    xgboost = library("xgboost")
    booster = load("XGBoost", lambda: xgboost.Booster(model_file=path))
    if "c" in (booster.feature_types or ()):
        raise DefinitionError(
            "it has categorical features, whose codes the file does not explain; write a service class that "
            "encodes them, and serve FILE.py:SERVICE"
        )
    names = booster.feature_names
    adapter, example = _input_of(booster.num_features(), names)
    best = booster.attr("best_iteration")
    # As the estimators do; (0, 0) is all rounds.
    rounds = (0, int(best) + 1) if best else (0, 0)

    class Model(Service):
        is_linear = '"gblinear"' in booster.save_config()
        """Whether it has no trees: such a booster has no rounds, and cannot predict in place."""

        @api(input=adapter, warmup=example)
        def predict(self, rows: Any) -> Any:
            """Return the output of the objective for each row, such as a probability."""
            if self.is_linear:
                return booster.predict(xgboost.DMatrix(rows))
            return booster.inplace_predict(rows, iteration_range=rounds)

    Model.__doc__ = f"The XGBoost model {path.name}."
    return Model


def _check_xgboost(path: Path) -> None:
    """Check the kind of the file before XGBoost reads it."""
    advice = "give a file of Booster.save_model, or of save_model of an estimator"
    if path.suffix == ".ubj":
        with path.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        if not head.startswith(b"{") or b"learner" not in head:
            raise DefinitionError(f"this is no XGBoost model in UBJSON; {advice}")
        return
    try:
        msgspec.json.decode(path.read_bytes(), type=_XGBoostFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(f"this is no XGBoost model ({error}); {advice}") from error


def lightgbm_service(path: Path) -> type[Service]:
    """Load a booster of LightGBM and return the class that serves it."""
    with path.open("rb") as opened:
        first = opened.readline(_HEAD_BYTES).strip()
    if first != _TREES:
        raise DefinitionError(
            f"this is no LightGBM model, whose first line is 'tree'; this one begins with {first[:20]!r}; "
            "give a file of Booster.save_model"
        )
    lightgbm = library("lightgbm")
    booster = load("LightGBM", lambda: lightgbm.Booster(model_file=path))
    names: list[str] = booster.feature_name()
    found = _categories_of(booster, names)
    has_names = not all(map(_UNNAMED.fullmatch, names)) or bool(found)
    adapter, example = _input_of(len(names), names if has_names else None, found)

    class Model(Service):
        categories = tuple(found)
        """The columns that were of the dtype category in training."""
        booleans = tuple(name for name, known in found.items() if all(type(one) is bool for one in known))
        """Those whose categories are booleans."""

        @api(input=adapter, warmup=example)
        def predict(self, rows: Any) -> Any:
            """Return the output of the objective for each row, such as a probability."""
            # The booster has the categories of its training data; it treats all others as missing.
            for name in self.booleans:  # pandas takes 1 and True for one category
                rows[name] = [bool(one) if one in (0, 1) else None for one in rows[name]]
            return booster.predict(rows.astype(dict.fromkeys(found, "category")) if found else rows)

    Model.__doc__ = f"The LightGBM model {path.name}."
    return Model


def _categories_of(booster: Any, names: list[str]) -> dict[str, list[Any]]:
    """Return the categories of the columns that were of the dtype category in training, by name."""
    known = booster.pandas_categorical or []
    columns = sorted(booster.params.get("categorical_feature") or []) if known else []
    if len(columns) != len(known):
        raise DefinitionError(
            f"{len(columns)} of its features are categorical, but the file has the categories of {len(known)}"
            "; write a service class that encodes them, and serve FILE.py:SERVICE"
        )
    return {names[at]: categories for at, categories in zip(columns, known, strict=True)}


def _input_of(
    count: int, names: list[str] | None, categories: dict[str, list[Any]] | None = None
) -> tuple[Adapter, Any]:
    """Return the adapter for the features, and an example row if there is a safe one."""
    if not names:
        return NdArray(dtype="float64", shape=(count,)), [0.0] * count
    known = categories or {}
    # pandas takes true and 1 for one category, so a row with true would change the category of a row with 1.
    # Booleans keep the type that clients send, as they may be missing.
    numbers = [name for name, values in known.items() if all(type(one) in (int, float) for one in values)]
    dtypes = {name: "float64" for name in names if name not in known or name in numbers}
    dtypes |= {name: "str" for name, values in known.items() if all(isinstance(one, str) for one in values)}
    example = {name: known[name][0] if name in known else 0.0 for name in names}
    return DataFrame(columns=names, dtypes=dtypes), example
