"""A transformer encoder with random weights; only its execution time matters."""

import os
from typing import Any

import torch

from uncork import Service, api
from uncork.adapters import NdArray

VOCABULARY = 1000
HEADS = 4
_FIRST = 4


class Encoder(Service):
    """Has ENCODER_LAYERS layers of width ENCODER_WIDTH; runs on a GPU if there is one."""

    def setup(self) -> None:
        """Create the model, the same in every worker."""
        torch.manual_seed(0)
        width = int(os.environ["ENCODER_WIDTH"])
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.embedding = torch.nn.Embedding(VOCABULARY, width).to(self.device)
        layer = torch.nn.TransformerEncoderLayer(width, HEADS, 4 * width, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, int(os.environ["ENCODER_LAYERS"]))
        self.encoder.to(self.device).eval()

    @api(input=NdArray(dtype="int64", shape=(None,)))
    def encode(self, tokens: Any) -> Any:
        """Return the first components of the mean over the tokens of each row."""
        with torch.inference_mode():
            states = self.encoder(self.embedding(torch.from_numpy(tokens).to(self.device)))
            return states.mean(dim=1)[:, :_FIRST].cpu().numpy()
