"""The examples embeddings and reranker with small random models, compared with the models called alone."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.e2e.server import HTTP, ROOT, Server, serving

if TYPE_CHECKING:
    import openai

# It has no type hints.
onnxruntime: Any = importlib.import_module("onnxruntime")

pytestmark = pytest.mark.slow

EMBEDDINGS = f"{ROOT / 'examples/embeddings/service.py'}:Embeddings"
RERANKER = f"{ROOT / 'examples/reranker/service.py'}:Reranker"
# Requests sent at once share a batch.
TOGETHER = ("--policy", "fixed:200")
TEXTS = ["the cork is in the bottle", "a ship", "river and mountain in the winter " * 12, "Überall: 42!"]
QUERY = "when does the ferry leave?"


class Model:
    """A random model of the examples, called with one text at a time, without padding."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        script = ROOT / "examples/random_models/make.py"
        subprocess.run([sys.executable, script, kind, folder], check=True)
        self._session = onnxruntime.InferenceSession(folder / "model.onnx")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text).ids
        return found

    def vector(self, text: str, width: int | None = None) -> np.ndarray[Any, Any]:
        """Return the mean over the tokens, cut to a width and normalized."""
        mean = self._run(text).mean(axis=0)[:width]
        vector: np.ndarray[Any, Any] = mean / np.linalg.norm(mean)
        return vector

    def score(self, query: str, document: str) -> float:
        return float(1 / (1 + np.exp(-self._run(query, document)[0])))

    def _run(self, text: str, pair: str | None = None) -> Any:
        encoded = self._tokenizer.encode(text, pair)
        rows = (encoded.ids, encoded.attention_mask, encoded.type_ids)
        names = ("input_ids", "attention_mask", "token_type_ids")
        feeds = {name: np.array([row], np.int64) for name, row in zip(names, rows, strict=True)}
        return self._session.run(None, feeds)[0][0]


@contextmanager
def serving_model(target: str, variable: str, model: Model) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, str(model.folder))
        with serving(target, *TOGETHER) as server:
            yield server


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model("embedder", tmp_path_factory.mktemp("embedder"))


@pytest.fixture(scope="module")
def embeddings(embedder: Model) -> Iterator[Server]:
    with serving_model(EMBEDDINGS, "EMBEDDINGS_MODEL", embedder) as server:
        yield server


@pytest.fixture
def client(embeddings: Server) -> Iterator[openai.OpenAI]:
    import openai  # takes a second

    with openai.OpenAI(base_url=f"{embeddings.base}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model("reranker", tmp_path_factory.mktemp("reranker"))


@pytest.fixture(scope="module")
def reranker(ranker: Model) -> Iterator[Server]:
    with serving_model(RERANKER, "RERANKER_MODEL", ranker) as server:
        yield server


def assert_vectors(reply: openai.types.CreateEmbeddingResponse, expected: list[Any]) -> None:
    """Check the vectors of a response, and its positions."""
    assert reply.object == "list"
    assert [(each.object, each.index) for each in reply.data] == [
        ("embedding", at) for at in range(len(expected))
    ]
    np.testing.assert_allclose([each.embedding for each in reply.data], expected, atol=1e-5)


def test_openais_client_gets_the_vectors_of_the_model(client: openai.OpenAI, embedder: Model) -> None:
    """Texts and token ids, one or several; the client asks for base64 unless told otherwise."""
    vectors = [embedder.vector(text) for text in TEXTS]
    ids = [embedder.ids(text) for text in TEXTS]

    def create(given: Any, **options: Any) -> openai.types.CreateEmbeddingResponse:
        return client.embeddings.create(model="any-name", input=given, user="u", **options)

    replies = [create(TEXTS), create(ids), create(TEXTS, encoding_format="float")]
    singles = [create(TEXTS[0]), create(ids[0]), create([TEXTS[0]]), create([ids[0]])]

    for reply in replies:
        assert_vectors(reply, vectors)
        count = sum(map(len, ids))
        assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (count, count)
        assert reply.model == "any-name"
    for reply in singles:
        assert_vectors(reply, vectors[:1])
        assert reply.usage.total_tokens == len(ids[0])
    assert_vectors(create(TEXTS, dimensions=5), [embedder.vector(text, 5) for text in TEXTS])


_NOT_A_TEXT = "a list of numbers must have token ids of this model"
WRONG_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"input": ""}, "Expected `str` of length >= 1 - at `$.input`"),
    ({"input": []}, "'input' must have at least one text"),
    ({"input": [[]]}, "Expected `array` of length >= 1 - at `$.input[0]`"),
    ({"input": ["a ship", 3]}, "Expected `str | array`, got `int` - at `$.input[1]`"),
    ({"input": [3, "a ship"]}, "Expected `int`, got `str` - at `$.input[1]`"),
    ({"input": [10**9]}, _NOT_A_TEXT),
    ({"input": [-1]}, "Expected `int` >= 0 - at `$.input[0]`"),
    ({"input": ["a ship", "the " * 511]}, "a text has 513 tokens; the model accepts 512"),
    ({"input": "a ship", "dimensions": 65}, "dimensions must be at most 64, got 65"),
    (
        {"input": "a ship", "encoding_format": "hex"},
        "the body must be a request: Invalid enum value 'hex' - at `$.encoding_format`",
    ),
]


def test_requests_of_several_clients_share_batches(client: openai.OpenAI, embedder: Model) -> None:
    """Each gets its own vectors, also if others in the batch are wrong and get OpenAI's exceptions."""
    import openai

    requests = [TEXTS[at:] + TEXTS[:at] for at in range(4)]

    def ask(
        body: dict[str, Any],
    ) -> tuple[int, openai.types.CreateEmbeddingResponse] | openai.BadRequestError:
        try:
            reply = client.embeddings.with_raw_response.create(model="m", **body)
        except openai.BadRequestError as error:
            return error
        return int(reply.headers["x-batch-size"]), reply.parse()

    bodies = [{"input": texts} for texts in requests] + [body for body, _ in WRONG_INPUTS]
    with ThreadPoolExecutor(len(bodies)) as pool:
        replies = list(pool.map(ask, bodies))

    sizes = []
    for texts, good in zip(requests, replies, strict=False):
        assert not isinstance(good, openai.BadRequestError)
        assert_vectors(good[1], [embedder.vector(text) for text in texts])
        sizes.append(good[0])
    assert max(sizes) > len(TEXTS)
    for (_, says), error in zip(WRONG_INPUTS, replies[len(requests) :], strict=True):
        assert isinstance(error, openai.BadRequestError), says
        assert (error.type, error.param, error.code) == ("invalid_request_error", None, None)
        assert error.response.json()["error"]["message"].removeprefix("not valid: ") == says
        assert says in error.message


def test_documents_are_ranked_as_by_the_model(reranker: Server, ranker: Model) -> None:
    """The best first, with their positions; only the best if so many are wanted."""
    scores = {at: ranker.score(QUERY, text) for at, text in enumerate(TEXTS)}
    best = sorted(scores, key=lambda at: -scores[at])
    body = {"query": QUERY, "documents": TEXTS, "model": "any-name"}

    def ask(**options: Any) -> dict[str, Any]:
        reply = HTTP.post(f"{reranker.base}/v1/rerank", json={**body, **options})
        assert reply.status_code == 200, reply.text
        document: dict[str, Any] = reply.json()
        return document

    ranked, top = ask(), ask(top_n=2, return_documents=True)

    assert ranked["model"] == "any-name"
    assert [each["index"] for each in ranked["results"]] == best
    for each in ranked["results"]:
        assert each == {
            "index": each["index"],
            "relevance_score": pytest.approx(scores[each["index"]], abs=1e-5),
        }
    assert [(each["index"], each["document"]) for each in top["results"]] == [
        (at, {"text": TEXTS[at]}) for at in best[:2]
    ]
    assert len(ask(documents=["the ferry " * 1000], query="q " * 1000)["results"]) == 1


def test_rerankings_of_several_clients_share_batches(reranker: Server, ranker: Model) -> None:
    """Each gets the scores of its own query; wrong requests get 400 alone."""
    wrong: list[dict[str, Any]] = [
        {"query": QUERY},
        {"query": QUERY, "documents": []},
        {"query": QUERY, "documents": [3]},
        {"query": QUERY, "documents": TEXTS, "top_n": 0},
        {"documents": TEXTS},
    ]
    queries = [QUERY, "what writes the machine", "", "neighbor " * 40]
    good: list[dict[str, Any]] = [
        {"query": query, "documents": TEXTS[at:]} for at, query in enumerate(queries)
    ]

    def ask(body: dict[str, Any]) -> httpx.Response:
        return HTTP.post(f"{reranker.base}/v1/rerank", json=body)

    with ThreadPoolExecutor(len(good + wrong)) as pool:
        replies = list(pool.map(ask, good + wrong))

    for body, reply in zip(good, replies, strict=False):
        found = {each["index"]: each["relevance_score"] for each in reply.json()["results"]}
        alone = {at: ranker.score(body["query"], text) for at, text in enumerate(body["documents"])}
        assert found == pytest.approx(alone, abs=1e-5)
    assert max(int(reply.headers["x-batch-size"]) for reply in replies[: len(good)]) > len(TEXTS)
    assert [reply.status_code for reply in replies[len(good) :]] == [400] * len(wrong)
    assert all(reply.json()["error"]["message"] for reply in replies[len(good) :])


@pytest.mark.parametrize(
    ("target", "variable", "missing"),
    [(EMBEDDINGS, "EMBEDDINGS_MODEL", "model.onnx"), (RERANKER, "RERANKER_MODEL", "tokenizer.json")],
)
def test_a_missing_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, variable: str, missing: str
) -> None:
    for name in {"model.onnx", "tokenizer.json"} - {missing}:
        (tmp_path / name).touch()
    monkeypatch.setenv(variable, str(tmp_path))
    file, _, name = target.rpartition(":")

    with pytest.raises(FileNotFoundError) as caught:
        runpy.run_path(file)[name]().setup()

    assert str(caught.value) == f"no file {tmp_path / missing}; set {variable} to the folder of the model"
