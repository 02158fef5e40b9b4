"""The services of scripts/gpu-evidence. They run on the CPU, with smaller models, if torch finds no GPU."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.services.encoder import VOCABULARY, Model, in_onnx
from uncork import Service, api
from uncork.adapters import Json, NdArray, Text

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
LAYERS, WIDTH = (6, 384) if ON_GPU else (1, 64)
SIZES = [1, 8, 64] if ON_GPU else [1, 4]
TOKENS = 64
NUMBERS = 8
# Of one row; the margin is for what else is allocated.
_ROW_BYTES = 2**26
_MARGIN_BYTES = 2**25
_BATCHED: dict[str, Any] = {"mb_max_batch_size": 64, "mb_max_latency": 60_000}
Run = Callable[[Any], Any]


def _returns(name: str, form: Run) -> Any:
    """Return an API whose result is the product of its rows in this form."""

    def product(self: Any, rows: NDArray[np.float32]) -> Any:
        return form(torch.from_numpy(rows).to(DEVICE) @ self.weights)

    product.__name__ = name
    return api(input=NdArray(dtype="float32", shape=(NUMBERS,)))(product)


class Results(Service):
    """Products of small whole numbers, which every type of number here represents exactly."""

    def setup(self) -> None:
        torch.manual_seed(0)
        self.weights = torch.randint(-3, 4, (NUMBERS, WIDTH), device=DEVICE).float()

    host = _returns("host", lambda product: product.cpu().numpy())
    tensor = _returns("tensor", lambda product: product)
    half = _returns("half", lambda product: product.half())
    bfloat16 = _returns("bfloat16", lambda product: product.bfloat16())
    rows = _returns("rows", list)
    columns = _returns("columns", lambda product: {"numbers": product})
    gradient = _returns("gradient", lambda product: product.T.contiguous().T.requires_grad_())


class ShortOfMemory(Service):
    """Doubles numbers, with memory for ``ROOM`` of them at a time."""

    def setup(self) -> None:
        self.room = int(os.environ["ROOM"])
        if ON_GPU:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction((self.room * _ROW_BYTES + _MARGIN_BYTES) / total)

    @api(input=Json(), mb_max_latency=60_000)
    def double(self, numbers: list[float]) -> Any:
        """Allocate half of the memory first, so that a failed call holds some."""
        if not ON_GPU and len(numbers) > self.room:
            raise torch.OutOfMemoryError("the stand-in for a GPU is out of memory")
        floats = _ROW_BYTES // 4 if ON_GPU else 1
        half = len(numbers) // 2
        parts = [torch.ones((rows, floats), device=DEVICE) for rows in (half, len(numbers) - half)]
        return torch.cat([part[:, 0] for part in parts]) * torch.tensor(numbers, device=DEVICE) * 2


class _Texts(Service):
    """BERT with random weights, and a tokenizer that knows the words w0, w1 and so on."""

    def setup(self) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

        words = {word: at for at, word in enumerate(["[PAD]", *(f"w{n}" for n in range(VOCABULARY - 1))])}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=WIDTH // 32,
            intermediate_size=4 * WIDTH,
        )
        self.model = BertModel(config).eval().to(DEVICE)

    def tokenize(self, texts: list[str]) -> Any:
        return self.tokenizer(texts, padding=True, return_tensors="pt")

    def encode(self, tokens: Any) -> Any:
        with torch.inference_mode():
            return self.model(**tokens.to(DEVICE)).last_hidden_state[:, 0].cpu()

    def largest(self, vectors: Any) -> Any:
        """Return the place of each row's largest component, which does not depend on rounding."""
        return vectors.argmax(1)


class InTurn(_Texts):
    """Tokenizes in the handler."""

    @api(input=Text(), **_BATCHED)
    def predict(self, texts: list[str]) -> Any:
        return self.largest(self.encode(self.tokenize(texts)))


class InStages(_Texts):
    """Tokenizes in a stage."""

    @api(input=Text(), **_BATCHED, prepare=_Texts.tokenize, finish=_Texts.largest)
    def predict(self, tokens: Any) -> Any:
        return self.encode(tokens)


class Eager(Service):
    """The encoder in batches of few sizes, as it is."""

    def setup(self) -> None:
        torch.manual_seed(0)
        model = Model(layers=min(LAYERS, 2), width=WIDTH).eval()
        with torch.inference_mode():
            self.run = self.prepare(model)

    def prepare(self, model: Any) -> Run:
        """Return the function that computes answers from token ids in main memory."""
        model.to(DEVICE)
        run = self.on_device(lambda ids: model(ids, torch.full_like(ids[:, 0], TOKENS)).argmax(1))
        return lambda rows: run(torch.from_numpy(rows).to(DEVICE))

    def on_device(self, run: Run) -> Run:
        return run

    @api(
        input=NdArray(dtype="int64", shape=(TOKENS,)),
        allowed_batch_sizes=SIZES,
        warmup=[1] * TOKENS,
        mb_max_latency=60_000,
    )
    def predict(self, rows: NDArray[np.int64]) -> Any:
        if len(rows) not in SIZES:
            raise ValueError(f"a batch has {len(rows)} rows; allowed: {SIZES}")
        with torch.inference_mode():
            return self.run(rows)


class Onnx(Eager):
    """The encoder in ONNX Runtime."""

    def prepare(self, model: Any) -> Run:
        run = in_onnx(model)
        return lambda rows: run(rows, np.full(len(rows), TOKENS)).argmax(1)


class Compiled(Eager):
    """The encoder compiled, on a GPU with CUDA graphs."""

    def on_device(self, run: Run) -> Run:
        compiled = torch.compile(run, dynamic=False, mode="reduce-overhead" if ON_GPU else None)
        return lambda ids: compiled(ids).clone()


class Graphs(Eager):
    """The encoder captured as CUDA graphs, one for each size."""

    def on_device(self, run: Run) -> Run:
        from tests.e2e.services.gpu import capture

        graphs = {
            rows: capture(run, torch.ones((rows, TOKENS), dtype=torch.int64, device=DEVICE)) for rows in SIZES
        }
        return lambda ids: graphs[len(ids)](ids)
