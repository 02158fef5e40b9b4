"""Relevance of documents to a query, for clients of Cohere, Jina and text-embeddings-inference, in ONNX."""

import os
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from uncork import Service, pad
from uncork.openai import Pair, rerank

MOST_TOKENS = 512  # BERT has as many positions; a longer pair of query and document is truncated
TOGETHER = 16  # pairs per call of the model, sorted by length: small groups need little padding


class Reranker(Service):
    """Score how well documents answer a query."""

    def setup(self) -> None:
        """Load the model from the folder that RERANKER_MODEL names, once per worker."""
        folder = Path(os.environ.get("RERANKER_MODEL", ""))
        model = folder / ("onnx/model.onnx" if (folder / "onnx").is_dir() else "model.onnx")
        for file in (model, folder / "tokenizer.json"):
            if not file.is_file():
                raise FileNotFoundError(f"no file {file}; set RERANKER_MODEL to the folder of the model")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))  # set in workers
        self.model = onnxruntime.InferenceSession(model, options)
        self.inputs = [each.name for each in self.model.get_inputs()]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MOST_TOKENS)

    @rerank(mb_max_latency=10_000, timeout=600)
    def rerank(self, pairs: list[Pair]) -> list[float]:
        """Return the relevance of each pair of query and document, from 0 to 1."""
        encodings = self.tokenizer.encode_batch([(pair.query, pair.text) for pair in pairs])
        scores: dict[int, float] = {}
        order = sorted(range(len(pairs)), key=lambda at: len(encodings[at]))
        for group in (order[start : start + TOGETHER] for start in range(0, len(order), TOGETHER)):
            rows = [encodings[at] for at in group]
            ids, mask = pad([row.ids for row in rows])
            types, _ = pad([row.type_ids for row in rows])
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            logits = self.model.run(None, {name: feeds[name] for name in self.inputs})[0][:, 0]
            scores.update(zip(group, (1 / (1 + np.exp(-logits))).tolist(), strict=True))
        return [scores[at] for at in range(len(pairs))]
