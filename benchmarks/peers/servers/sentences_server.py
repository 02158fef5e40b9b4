# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""Sentence-transformers in FastAPI: one call of the model for each request, in a thread."""

import os
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

app, model = FastAPI(), SentenceTransformer(os.environ["PEER_FOLDER"])


class Texts(BaseModel):
    """A request."""

    model: str
    input: list[str]


@app.get("/readyz")
def ready() -> str:
    """Say that the model is loaded: it is before the server listens."""
    return "ready"


@app.post("/v1/embeddings")
def embed(texts: Texts) -> dict[str, Any]:
    """Answer with a vector for each text."""
    vectors = model.encode(texts.input, show_progress_bar=False).tolist()
    return {"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]}
