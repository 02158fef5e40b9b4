"""Text embeddings at OpenAI's route, POST /v1/embeddings, from a sentence transformer in ONNX."""

import base64
import os
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import onnxruntime
from msgspec import Meta, Struct
from tokenizers import Tokenizer

from uncork import Service, api, pad
from uncork.adapters import Json
from uncork.outputs import Rejected

MOST_TOKENS = 512  # BERT has as many positions
TOGETHER = 16  # texts per call of the model, sorted by length: small groups need little padding
EXAMPLE = {"input": "The ferry leaves the harbor at noon and reaches the island before the sun goes down."}

Text = Annotated[str, Meta(min_length=1)]
Ids = Annotated[list[int], Meta(min_length=1)]


class EmbeddingsRequest(Struct):
    """The body of a request to OpenAI's API. The response repeats `model`."""

    input: Text | Annotated[list[Text | int | Ids], Meta(min_length=1, max_length=2048)]
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class Embeddings(Service):
    """Turn texts into vectors; texts of similar meaning have a larger dot product."""

    def setup(self) -> None:
        """Load the model from the folder that EMBEDDINGS_MODEL names, once per worker."""
        folder = Path(os.environ.get("EMBEDDINGS_MODEL", ""))
        model = folder / ("onnx/model.onnx" if (folder / "onnx").is_dir() else "model.onnx")
        for file in (model, folder / "tokenizer.json"):
            if not file.is_file():
                raise FileNotFoundError(f"no file {file}; set EMBEDDINGS_MODEL to the folder of the model")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))  # set in workers
        self.model = onnxruntime.InferenceSession(model, options)
        self.inputs = [each.name for each in self.model.get_inputs()]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    # A batch holds at most 8000 bytes of input, but one request alone may have 2048 texts and take minutes.
    @api(
        input=Json(type=EmbeddingsRequest),
        route="/v1/embeddings",
        errors="openai",
        cost="input",
        mb_max_batch_size=8000,
        mb_max_latency=60_000,
        timeout=600,
        warmup=EXAMPLE,
    )
    def embeddings(self, requests: list[EmbeddingsRequest]) -> list[dict | Rejected]:
        """Return a vector of length 1 for each text."""
        tokens = [self.tokenize(request.input) for request in requests]
        # The texts of all requests, in one list.
        vectors = iter(self.embed([ids for each in tokens if not isinstance(each, Rejected) for ids in each]))
        return [
            each if isinstance(each, Rejected) else respond(request, each, list(islice(vectors, len(each))))
            for request, each in zip(requests, tokens, strict=True)
        ]

    def tokenize(self, given: str | list[str | int | list[int]]) -> list[list[int]] | Rejected:
        """Return the token ids of each text; a list of numbers is one text."""
        texts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        tokens = [self.tokenizer.encode(text).ids if isinstance(text, str) else text for text in texts]
        vocabulary = range(self.tokenizer.get_vocab_size())
        for at, ids in enumerate(tokens):
            if not isinstance(ids, list) or not all(one in vocabulary for one in ids):
                return Rejected(400, f"input[{at}] is neither a text nor a list of token ids of this model")
            if len(ids) > MOST_TOKENS:
                return Rejected(400, f"input[{at}] has {len(ids)} tokens; the model accepts {MOST_TOKENS}")
        return tokens

    def embed(self, tokens: list[list[int]]) -> list[np.ndarray]:
        """Return the vector of each text: the sum over its tokens, in the direction of their mean."""
        vectors: dict[int, np.ndarray] = {}
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        for group in (order[start : start + TOGETHER] for start in range(0, len(order), TOGETHER)):
            ids, mask = pad([tokens[at] for at in group])
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = self.model.run(None, {name: feeds[name] for name in self.inputs})[0]
            vectors.update(zip(group, (hidden * mask[..., None]).sum(axis=1), strict=True))
        return [vectors[at] for at in range(len(tokens))]


def respond(request: EmbeddingsRequest, tokens: list[list[int]], vectors: list) -> dict | Rejected:
    """Return the response to a request, with vectors of length 1."""
    if request.dimensions is not None and request.dimensions > len(vectors[0]):
        return Rejected(400, f"dimensions must be at most {len(vectors[0])}, got {request.dimensions}")
    cut = np.stack(vectors)[:, : request.dimensions]
    cut = (cut / np.linalg.norm(cut, axis=1, keepdims=True)).astype("<f4")
    in_base64 = request.encoding_format == "base64"
    values = [base64.b64encode(row).decode() if in_base64 else row.tolist() for row in cut]
    data = [{"object": "embedding", "index": at, "embedding": value} for at, value in enumerate(values)]
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), sum(map(len, tokens)))
    return {"object": "list", "data": data, "model": request.model, "usage": usage}
