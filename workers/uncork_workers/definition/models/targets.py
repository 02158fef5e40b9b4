"""Targets that are model files or folders. The gateway reads them too, so nothing here loads a model."""

import re
from pathlib import Path

KINDS = {
    ".onnx": "an ONNX model",
    ".joblib": "an estimator of scikit-learn",
    ".pkl": "an estimator of scikit-learn",
    ".json": "an XGBoost model",
    ".ubj": "an XGBoost model",
    ".txt": "a LightGBM model",
}
"""What model files contain, by the end of their names."""


CONFIG = "config.json"
"""The file that makes a folder a model of transformers."""

# Words of Python, and constants in the file of `uncork init`.
_TAKEN = ("None", "True", "False", "MODEL", "DTYPES")


def is_model(target: str) -> bool:
    """Return whether a target names a model rather than a class."""
    return Path(target).suffix in KINDS or is_model_folder(target)


def is_model_folder(target: str) -> bool:
    """Return whether a target names the folder of a model."""
    try:
        return Path(target, CONFIG).is_file()
    except OSError:  # a path that is too long, or in a folder that this user may not read
        return False


def class_name(target: str) -> str:
    """Return the name of the class that serves a model: its file's name as a Python class would have it."""
    path = Path(target).absolute()
    words = re.findall(r"[A-Za-z0-9]+", path.stem if path.suffix in KINDS else path.name)
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() and name not in _TAKEN else f"Model{name}"
