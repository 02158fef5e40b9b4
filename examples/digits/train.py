"""Trains the forest of the digits example on scikit-learn's bundled data, and keeps it in model/."""

import argparse
import os
from pathlib import Path

import joblib
import sklearn
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def model_path() -> Path:
    """Where the forest is kept. A pickled model belongs to the version of scikit-learn that made it."""
    return Path(__file__).parent / "model" / f"forest-{sklearn.__version__}.joblib"


def split() -> list:
    """Images and labels: training images, test images, training labels, test labels."""
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images.astype("float32"), labels, test_size=0.25, random_state=0)


def train() -> None:
    """Train on three quarters of the data, print the accuracy on the rest, and keep the forest."""
    train_images, test_images, train_labels, test_labels = split()
    forest = RandomForestClassifier(n_estimators=200, random_state=0)
    forest.fit(train_images, train_labels)
    accuracy = forest.score(test_images, test_labels)
    print(f"Trained a forest of 200 trees; it reads {accuracy:.1%} of the test images right.")
    path = model_path()
    path.parent.mkdir(exist_ok=True)
    # Put in place whole: a run that is interrupted leaves no half-written model behind.
    unfinished = path.with_suffix(f".{os.getpid()}")
    joblib.dump(forest, unfinished)
    unfinished.replace(path)


def print_curl(url: str) -> None:
    """Print a command that asks the service about one test image."""
    _, images, _, labels = split()
    row = "[" + ",".join(f"{pixel:g}" for pixel in images[0]) + "]"
    print(f"Once it is ready, ask it in another terminal about an image of a {labels[0]}:\n")
    print(f"curl {url} -H 'content-type: application/json' -d '{row}'\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curl", metavar="URL", help="print a command that asks the api at URL")
    options = parser.parse_args()
    if not model_path().exists():
        train()
    if options.curl:
        print_curl(options.curl)
