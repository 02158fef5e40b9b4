"""Relevance of documents to a query, POST /v1/rerank as at Cohere and Jina, from a cross-encoder in ONNX."""

import os
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
from msgspec import Meta, Struct
from tokenizers import Tokenizer

from uncork import Service, api, pad
from uncork.adapters import Json

MOST_TOKENS = 512  # BERT has as many positions; a longer pair of query and document is truncated
TOGETHER = 16  # pairs per call of the model, sorted by length: small groups need little padding
EXAMPLE = {
    "query": "When does the ferry leave?",
    "documents": ["The ferry leaves the harbor at noon.", "The island has one shop."],
}


class RerankRequest(Struct):
    """The body of a request. The response repeats `model` and has the `top_n` best documents, or all."""

    query: str
    documents: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False
    model: str = ""


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

    # A batch holds at most 16 kB of documents, but one request alone may have 1000 and take a minute or more.
    @api(
        input=Json(type=RerankRequest),
        route="/v1/rerank",
        cost="documents",
        mb_max_batch_size=16_000,
        mb_max_latency=10_000,
        timeout=600,
        warmup=EXAMPLE,
    )
    def rerank(self, requests: list[RerankRequest]) -> list[dict]:
        """Return documents with their relevance from 0 to 1, the best first."""
        # The pairs of all requests, in one list.
        scores = iter(self.score([(each.query, text) for each in requests for text in each.documents]))
        return [respond(request, list(islice(scores, len(request.documents)))) for request in requests]

    def score(self, pairs: list[tuple[str, str]]) -> list[float]:
        """Return the relevance of each pair of query and document."""
        encodings = self.tokenizer.encode_batch(pairs)
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


def respond(request: RerankRequest, scores: list[float]) -> dict:
    """Return the response to a request."""
    best = sorted(range(len(scores)), key=lambda at: -scores[at])[: request.top_n]
    results: list[dict] = [{"index": at, "relevance_score": scores[at]} for at in best]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    return {"model": request.model, "results": results}
