"""Train the booster of this example on scikit-learn's bundled diabetes data, and save it in model/."""

import os

import lightgbm
import numpy as np
from service import COLUMNS, MODEL
from sklearn.datasets import load_diabetes
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

PARAMETERS = {
    "objective": "binary",
    "num_leaves": 7,
    "learning_rate": 0.02,
    "deterministic": True,
    "verbosity": -1,
}


def split() -> list:
    """Return patients for training and test, and whether their disease progressed faster than the median."""
    patients, progression = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    patients.columns = COLUMNS
    # The booster's file keeps the categories of a column with this dtype.
    patients["sex"] = patients["sex"].map({1: "1", 2: "2"}).astype("category")
    return train_test_split(patients, progression > progression.median(), test_size=0.25, random_state=0)


def train() -> lightgbm.Booster:
    """Train on three quarters of the patients, and print the quality on the rest."""
    patients, test_patients, is_fast, test_is_fast = split()
    # In a column without missing values in training, LightGBM would predict for a missing one as for 0.
    hidden = np.random.default_rng(0).random(patients.shape) < 0.1
    data = lightgbm.Dataset(patients.mask(hidden), is_fast)
    booster = lightgbm.train(PARAMETERS, data, num_boost_round=300)
    area = roc_auc_score(test_is_fast, booster.predict(test_patients))
    print(f"Trained a booster of 300 trees. Area under the ROC curve on the test patients: {area:.2f}.")
    return booster


if __name__ == "__main__":
    MODEL.parent.mkdir(exist_ok=True)
    # Rename the complete file, so that an interrupted run leaves no partial model at this path.
    unfinished = MODEL.with_suffix(f".{os.getpid()}")
    train().save_model(unfinished)
    unfinished.replace(MODEL)
