"""Text embeddings for clients of OpenAI and text-embeddings-inference, from an ONNX sentence transformer."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from uncork import Service, context, pad
from uncork.openai import embeddings
from uncork.outputs import Rejected

MOST_TOKENS = 512  # BERT has as many positions
TOGETHER = 16  # texts per call of the model, sorted by length: small groups need little padding


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
        self.vocabulary = range(self.tokenizer.get_vocab_size())

    # A batch holds at most 8000 bytes of text; a request with more runs in parts.
    @embeddings(mb_max_batch_size=8000, mb_max_latency=60_000)
    def embed(self, inputs: list[str | list[int]]) -> tuple[list, list[int]]:
        """Return the sum of the vectors of each text's tokens, which points where their mean does."""
        tokens = [self.tokenize(*each) for each in zip(inputs, context().parameters, strict=True)]
        vectors = list(tokens)  # each is replaced by a vector, unless it is Rejected
        texts = [at for at, ids in enumerate(tokens) if isinstance(ids, list)]
        order = sorted(texts, key=lambda at: len(tokens[at]))
        for group in (order[start : start + TOGETHER] for start in range(0, len(order), TOGETHER)):
            ids, mask = pad([tokens[at] for at in group])
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = self.model.run(None, {name: feeds[name] for name in self.inputs})[0]
            for at, vector in zip(group, (hidden * mask[..., None]).sum(axis=1), strict=True):
                vectors[at] = vector
        return vectors, [0 if isinstance(ids, Rejected) else len(ids) for ids in tokens]

    def tokenize(self, given: str | list[int], parameters: Mapping) -> list[int] | Rejected:
        """Return the token ids of a text, truncated if its client wants that."""
        ids = self.tokenizer.encode(given).ids if isinstance(given, str) else given
        if not all(one in self.vocabulary for one in ids):
            return Rejected(400, "a list of numbers must have token ids of this model")
        if len(ids) <= MOST_TOKENS:
            return ids
        if not parameters.get("truncate"):
            return Rejected(400, f"a text has {len(ids)} tokens; the model accepts {MOST_TOKENS}")
        return [*ids[: MOST_TOKENS - 1], ids[-1]]
