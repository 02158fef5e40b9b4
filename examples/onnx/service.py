"""Digits in images, recognized with ONNX Runtime. Run make_model.py first, or set ONNX_MODEL to a file."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image as Pillow

from uncork import Service, api
from uncork.adapters import Image

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
# In order of preference.
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]


class Digits(Service):
    """Recognize handwritten digits, white on black."""

    def setup(self) -> None:
        """Load the model, once per worker, on a GPU if ONNX Runtime finds one."""
        path = Path(os.environ.get("ONNX_MODEL", HERE / "model/digits.onnx"))
        if not path.is_file():
            raise FileNotFoundError(
                f"no model at {path}: run make_model.py, or set ONNX_MODEL to an ONNX file"
            )
        options = onnxruntime.SessionOptions()
        # Uncork sets OMP_NUM_THREADS to the worker's share of the cores; ONNX Runtime does not read it.
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        # Idle threads sleep instead of taking cores from the gateway and the other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        available = onnxruntime.get_available_providers()
        providers = [provider for provider in PROVIDERS if provider in available]
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)
        self.input = self.session.get_inputs()[0].name
        log.info("loaded %s with %s", path.name, self.session.get_providers()[0])

    @api(input=Image(mode="L", size=(8, 8)), mb_max_latency=100, warmup=HERE / "seven.png")
    def predict(self, images: Sequence[Pillow.Image]) -> dict[str, np.ndarray]:
        """Return the digit in each image and its probability."""
        pixels = np.stack([np.asarray(image) for image in images]).astype("float32") / 255
        [probabilities] = self.session.run(None, {self.input: pixels})
        return {"digit": probabilities.argmax(axis=1), "probability": probabilities.max(axis=1)}
