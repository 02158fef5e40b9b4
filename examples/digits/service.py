"""Handwritten digits: a random forest behind two APIs. Run train.py first."""

import joblib
import numpy as np
from train import model_path

from uncork import Service, api
from uncork.adapters import NdArray

# A row is an image of 8 x 8 pixels in reading order, each from 0 (white) to 16 (black).
PIXELS = NdArray(dtype="float32", shape=(64,))


def in_range(rows: np.ndarray) -> np.ndarray:
    """Clip pixels to the range 0 to 16: `.npy` bodies can contain infinity, which the forest rejects."""
    return np.clip(rows, 0, 16)


class Digits(Service):
    """Recognize handwritten digits."""

    def setup(self) -> None:
        """Load the forest, once per worker."""
        self.forest = joblib.load(model_path())

    @api(input=PIXELS, mb_max_latency=300)
    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the digit of each image."""
        return self.forest.predict(in_range(rows))

    @api(input=PIXELS, mb_max_latency=300)
    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """Return the probabilities of the digits 0 to 9 for each image."""
        return self.forest.predict_proba(in_range(rows))
