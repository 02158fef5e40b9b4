"""A service with large answers, to measure their transport."""

import os
from typing import Any

import numpy as np

from uncork import Service, api
from uncork.adapters import NdArray


class Vectors(Service):
    """Answers each number with VECTOR_VALUES numbers."""

    def setup(self) -> None:
        """Draw the values, the same in every worker."""
        random = np.random.default_rng(1)
        self.values = random.standard_normal(int(os.environ["VECTOR_VALUES"]), dtype="float32")

    @api(input=NdArray(dtype="float32", shape=(1,)))
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the values times each number."""
        answers: np.ndarray[Any, Any] = rows * self.values
        return answers
