"""Wines classified by chemistry: tables in, tables out. Each worker trains the model at start."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from uncork import Service, api
from uncork.adapters import DataFrame
from uncork.outputs import Csv, Json

WINES = load_wine(as_frame=True)
# Column names without slashes.
COLUMNS = [name.replace("/", "_per_") for name in WINES.feature_names]


class Wine(Service):
    """Predict which of three growers made a wine."""

    def setup(self) -> None:
        """Train the forest, once per worker (about 0.2 s)."""
        forest = RandomForestClassifier(n_estimators=100, random_state=0)
        self.model = make_pipeline(SimpleImputer(), forest)
        self.model.fit(WINES.data.to_numpy(), WINES.target)

    @api(input=DataFrame(columns=COLUMNS, dtypes=dict.fromkeys(COLUMNS, "float32")), output=[Csv(), Json()])
    def grower(self, wines: pd.DataFrame) -> pd.DataFrame:
        """Return the grower and its probability for each wine; the mean replaces missing measurements."""
        # CSV can contain infinity, which the imputer rejects.
        chances = self.model.predict_proba(wines.replace([np.inf, -np.inf], np.nan).to_numpy())
        return pd.DataFrame({"grower": chances.argmax(axis=1), "probability": chances.max(axis=1)})
