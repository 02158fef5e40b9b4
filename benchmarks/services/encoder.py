"""A transformer encoder with random weights; only its execution time matters."""

import io
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from uncork import Service, api
from uncork.adapters import Json, NdArray

VOCABULARY = 1000
HEADS = 4
_FIRST = 4
# As the default of text-embeddings-inference.
_MOST_TOKENS = 16_384
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
Run = Callable[[NDArray[np.int64], NDArray[np.int64]], Any]
"""Encodes padded token ids and the lengths of their rows."""


class Text(Struct):
    """A text as token ids."""

    tokens: int
    """How many there are."""
    ids: list[int]


class Layer(nn.Module):  # type: ignore[misc]
    """One layer: attention and a feed-forward network, each with a residual and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attended, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.after_attention, self.after_network = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, states: Any, is_token: Any) -> Any:
        """Let every token attend to the tokens of its row, but not to padding."""
        heads = self.attended(states).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        attention = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=is_token[:, None, None, :]
        )
        states = self.after_attention(states + self.mixed(attention.transpose(1, 2).flatten(2)))
        return self.after_network(states + self.down(functional.gelu(self.up(states))))


class Model(nn.Module):  # type: ignore[misc]
    """Layers, and the mean over the tokens of each row."""

    def __init__(self, *, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, ids: Any, lengths: Any) -> Any:
        is_token = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        states = self.embedding(ids)
        for layer in self.layers:
            states = layer(states, is_token)
        return (states * is_token[..., None]).sum(1) / lengths[:, None]


def in_torch(model: Model) -> Run:
    """Return a function that runs the model in torch, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)

    def run(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)).cpu().numpy()

    return run


def in_onnx(model: Model) -> Run:
    """Return a function that runs the model in ONNX Runtime, on a GPU if it finds one."""
    import onnxruntime

    file = io.BytesIO()
    example = torch.zeros((2, 3), dtype=torch.int64), torch.tensor([3, 2])
    with warnings.catch_warnings():
        # The other exporter needs one more package.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            example,
            file,
            dynamo=False,
            input_names=["ids", "lengths"],
            dynamic_axes={"ids": {0: "rows", 1: "longest"}, "lengths": {0: "rows"}},
        )
    options = onnxruntime.SessionOptions()
    # ONNX Runtime does not read the variable itself.
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    available = onnxruntime.get_available_providers()
    providers = [provider for provider in _PROVIDERS if provider in available]
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=providers)
    return lambda ids, lengths: session.run(None, {"ids": ids, "lengths": lengths})[0]


class Encoder(Service):
    """Has ENCODER_LAYERS layers of width ENCODER_WIDTH; runs in ENCODER_RUNTIME, "torch" or "onnx"."""

    def setup(self) -> None:
        """Create the model, the same in every worker."""
        torch.manual_seed(0)
        model = Model(layers=int(os.environ["ENCODER_LAYERS"]), width=int(os.environ["ENCODER_WIDTH"])).eval()
        self.run = {"torch": in_torch, "onnx": in_onnx}[os.environ["ENCODER_RUNTIME"]](model)
        self.tokens = self.padded = 0

    @api(input=NdArray(dtype="int64", shape=(None,)))
    def encode(self, ids: NDArray[np.int64]) -> Any:
        """Return the first components of the mean over the tokens of rows of one length."""
        return self.run(ids, np.full(len(ids), ids.shape[1]))[:, :_FIRST]

    @api(input=Json(type=Text), cost="tokens", mb_max_batch_size=_MOST_TOKENS)
    def embed(self, texts: Sequence[Text]) -> Any:
        """Return the same of texts of different lengths, padded to the longest."""
        lengths = np.array([len(text.ids) for text in texts])
        ids = np.zeros((len(texts), lengths.max()), dtype=np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text.ids)] = text.ids
        self.tokens += int(lengths.sum())
        self.padded += ids.size
        return self.run(ids, lengths)[:, :_FIRST]

    @api(input=Json(type=Text))
    def embed_without_cost(self, texts: Sequence[Text]) -> Any:
        """Return the same; the gateway counts rows."""
        return self.embed(texts)

    @api(input=Json(), policy="none")
    def work(self, rows: Sequence[Any]) -> list[list[int]]:
        """Return the tokens embedded so far, without and with padding."""
        return [[self.tokens, self.padded]] * len(rows)
