"""Handwritten digits: a random forest behind two apis. Train it first: python train.py."""

import joblib
import numpy as np
from train import model_path

from uncork import Service, api
from uncork.adapters import NdArray

# A row is an image of 8 x 8 pixels, line by line, each from 0 (white) to 16 (black).
PIXELS = NdArray(dtype="float32", shape=(64,))


def in_range(rows: np.ndarray) -> np.ndarray:
    """Blacker than black is black: the forest takes no infinite numbers, which files of NumPy can have."""
    return np.clip(rows, 0, 16)


class Digits(Service):
    """Reads digits."""

    def setup(self) -> None:
        """Load the forest; once in every worker."""
        self.forest = joblib.load(model_path())

    @api(input=PIXELS, mb_max_latency=300)
    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the digit of each image."""
        return self.forest.predict(in_range(rows))

    @api(input=PIXELS, mb_max_latency=300)
    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """Return for each image the probability of each digit from 0 to 9."""
        return self.forest.predict_proba(in_range(rows))
