"""The models of the examples, made by the examples' own scripts."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.server import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = {"digits": "train.py", "lightgbm": "train.py", "onnx": "make_model.py"}


def make_model(example: str) -> None:
    """Make the model of an example as its page says; it is complete before it has its name."""
    subprocess.run([sys.executable, EXAMPLES / example / SCRIPTS[example]], check=True, capture_output=True)
