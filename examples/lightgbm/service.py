"""Probabilities from a LightGBM booster: rows with missing values and a category in. Run train.py first."""

from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from uncork import Service, api
from uncork.adapters import DataFrame
from uncork.outputs import Csv, Json

MODEL = Path(__file__).parent / "model" / "diabetes.txt"
# An example, for the warm-up and /docs.
PATIENT = {
    "age": 59,
    "sex": "2",
    "bmi": 32.1,
    "blood_pressure": 101,
    "cholesterol": 157,
    "ldl": 93.2,
    "hdl": 38,
    "cholesterol_per_hdl": 4,
    "log_triglycerides": 4.86,
    "glucose": 87,
}
COLUMNS = list(PATIENT)
# Floats may be missing; codes stay text, as sent.
DTYPES = {name: "str" if name == "sex" else "float64" for name in COLUMNS}


class Diabetes(Service):
    """Predict how a diabetes progresses."""

    def setup(self) -> None:
        """Load the booster, once per worker."""
        if not MODEL.is_file():
            raise FileNotFoundError(f"no model at {MODEL}: run train.py")
        self.booster = lightgbm.Booster(model_file=MODEL)
        if self.booster.feature_name() != COLUMNS:
            raise ValueError(f"{MODEL} has other columns: {self.booster.feature_name()}; run train.py again")

    @api(
        input=DataFrame(columns=COLUMNS, dtypes=DTYPES),
        output=[Json(), Csv()],
        mb_max_latency=300,
        warmup=PATIENT,
    )
    def progression(self, patients: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return the probability that the disease of each patient progresses faster than the median."""
        # The booster has the categories of the training data; LightGBM treats all others as missing.
        return {"probability": self.booster.predict(patients.astype({"sex": "category"}))}
