"""Train the forest of the digits example on scikit-learn's bundled data, and save it in model/."""

import os
from pathlib import Path

import joblib
import sklearn
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def model_path() -> Path:
    """Return the path of the forest. It names the scikit-learn version, because pickles depend on it."""
    return Path(__file__).parent / "model" / f"forest-{sklearn.__version__}.joblib"


def split() -> list:
    """Return training images, test images, training labels and test labels."""
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images.astype("float32"), labels, test_size=0.25, random_state=0)


def train() -> None:
    """Train on three quarters of the data, print the accuracy on the rest, and save the forest."""
    train_images, test_images, train_labels, test_labels = split()
    forest = RandomForestClassifier(n_estimators=200, random_state=0)
    forest.fit(train_images, train_labels)
    accuracy = forest.score(test_images, test_labels)
    print(f"Trained a forest of 200 trees. Accuracy on the test images: {accuracy:.1%}.")
    path = model_path()
    path.parent.mkdir(exist_ok=True)
    # Rename the complete file, so that an interrupted run leaves no partial model at this path.
    unfinished = path.with_suffix(f".{os.getpid()}")
    joblib.dump(forest, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    if not model_path().exists():
        train()
