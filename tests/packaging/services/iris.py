import numpy as np
import sklearn
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

from uncork import Service, api
from uncork.adapters import NdArray


class Iris(Service):
    def setup(self) -> None:
        self.data = load_iris()
        self.tree = DecisionTreeClassifier(random_state=0).fit(self.data.data, self.data.target)

    @api(input=NdArray(dtype="float64", shape=(4,)))
    def predict(self, rows: np.ndarray) -> list[list[str]]:
        names = self.data.target_names[self.tree.predict(rows)]
        return [[sklearn.__version__, str(name)] for name in names]
