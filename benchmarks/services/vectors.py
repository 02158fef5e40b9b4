"""A service with large answers: what is measured is how they get out."""

import os
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import NdArray


class Vectors(Service):
    """Answers each number with VECTOR_VALUES others."""

    def setup(self) -> None:
        """Draw the values; every worker has the same."""
        random = np.random.default_rng(1)
        self.values = random.standard_normal(int(os.environ["VECTOR_VALUES"]), dtype="float32")

    @api(input=NdArray(dtype="float32", shape=(1,)))
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the values times each number."""
        answers: np.ndarray[Any, Any] = rows * self.values
        return answers
