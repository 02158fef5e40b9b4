"""Text models in Python: what handlers return, stages, and definitions."""

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.workers.definition.outputs.test_host import Tensor, torch
from uncork import Service
from uncork.openai import embeddings, rerank
from uncork.testing import client
from uncork_workers.definition.outputs.responses import Rejected, WrongResult
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.warmup import examples_of, warm_up
from uncork_workers.wire.values import DefinitionError

__all__ = ["torch"]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ([[1.0]], "must return vectors and the number of tokens of each text, got list"),
        (([[1.0], [2.0]], [1]), "2 vectors and 1 number of tokens were returned for 1 text"),
        (([1.0], [1]), "a vector must have one axis"),
        (([[float("nan")]], [1]), "a vector has a value that is NaN or infinite"),
        (([[1.0]], [1.5]), "a number of tokens must be whole, got 1.5"),
        (([[1.0]], np.array([np.nan])), "a number of tokens must be whole, got nan"),
        ((None, [1]), "must return an array, a table or a list with one result per row, got None"),
    ],
)
def test_wrong_embeddings_fail_with_a_reason(result: Any, says: str) -> None:
    class Wrong(Service):
        @embeddings()
        def embed(self, inputs: Any) -> Any:
            """Return nonsense."""
            return result

    with client(Wrong) as made, pytest.raises(WrongResult, match=says):
        made.post("/embed", json={"inputs": "a"})


@pytest.mark.parametrize("tokens", [[2.0], [True], np.ones(1, np.float16), np.ones(1, np.uint8)])
def test_numbers_of_tokens_may_be_of_any_type(tokens: Any) -> None:
    class Counting(Service):
        @embeddings()
        def embed(self, inputs: Any) -> Any:
            """Return a vector of one value."""
            return [[1.0]], tokens

    with client(Counting) as made:
        assert made.post("/v1/embeddings", json={"input": "a"}).json()["usage"]["total_tokens"] == int(
            tokens[0]
        )


def test_tensors_of_bfloat16_and_on_a_device() -> None:
    """Also after a text that was rejected."""
    vectors: list[Any] = []

    class Short(Service):
        @embeddings()
        def embed(self, inputs: Any) -> Any:
            """Return the vectors of the test."""
            return vectors.pop(), Tensor([1] * len(inputs), "bfloat16")

        @rerank()
        def rerank(self, pairs: Any) -> Any:
            """Return one rejection, and scores."""
            return [Rejected(400, "no"), *[Tensor(0.5, "bfloat16")] * (len(pairs) - 1)]

    with client(Short) as made:
        for found in (Tensor([[3, 4]], "bfloat16"), [Tensor([3, 4], "bfloat16")]):
            vectors.append(found)
            assert made.post("/embed", json={"inputs": ["a"]}).json() == [pytest.approx([0.6, 0.8])]
        vectors.append([Rejected(400, "no"), Tensor([3, 4])])
        replies = made.post_all("/embed", json=[{"inputs": ["a"]}, {"inputs": ["b"]}])
        assert [reply.status_code for reply in replies] == [400, 200]
        assert replies[1].json() == [pytest.approx([0.6, 0.8])]
        bodies = [{"query": "q", "texts": [text]} for text in ("a", "b")]
        first, second = made.post_all("/rerank", json=bodies)
        assert (first.status_code, second.json()[0]["score"]) == (400, 0.5)


def test_the_metadata_has_the_outputs_of_each_row() -> None:
    class Warm(Service):
        @embeddings()
        def embed(self, inputs: list[Any]) -> Any:
            """Return vectors of one value."""
            return [[2.0]] * len(inputs), [3] * len(inputs)

    with closing(Executor(Warm())) as executor:
        ended = warm_up(executor, examples_of(Warm, []), seconds=60, on_size=lambda api, rows: None)
    result = ended["embed"].result
    assert result is not None
    assert json.loads(result.body) == {"embedding": [1.0], "tokens": 3}


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ([1, 2], "2 scores were returned for 1 pair"),
        ([float("nan")], "finite"),
        (None, "one result per row, got None; is a return statement missing\\?"),
        (np.float32(0.5), "one result per row, got a single float32"),
    ],
)
def test_wrong_scores_fail_with_a_reason(scores: Any, says: str) -> None:
    class Wrong(Service):
        @rerank()
        def rerank(self, pairs: Any) -> Any:
            """Return nonsense."""
            return scores

    with client(Wrong) as made, pytest.raises(WrongResult, match=says):
        made.post("/rerank", json={"query": "q", "texts": ["a"]})


def test_stages_and_rejections() -> None:
    class Staged(Service):
        def tokenize(self, inputs: list[Any]) -> list[int]:
            """Return the lengths."""
            return list(map(len, inputs))

        @embeddings(prepare=tokenize)
        def embed(self, lengths: list[int]) -> Any:
            """Return vectors of one value."""
            return [[1.0]] * len(lengths), lengths

    with client(Staged) as made:
        assert made.post("/v1/embeddings", json={"input": ["a", "bb"]}).json()["usage"]["total_tokens"] == 3


def test_wrong_definitions() -> None:
    with pytest.raises(TypeError, match="embeddings\\(\\) sets errors itself"):
        embeddings(errors="problem")
    with pytest.raises(TypeError, match="mb_max_latncy"):
        embeddings(mb_max_latncy=3)

    class Twice(Service):
        @embeddings()
        def one(self, inputs: Any) -> Any:
            """Embed."""

        @embeddings()
        def two(self, inputs: Any) -> Any:
            """Embed."""

    with pytest.raises(DefinitionError, match="have the same route '/v1/embeddings'"), client(Twice):
        pass
