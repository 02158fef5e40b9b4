"""Text models in Python: what handlers return, stages, and definitions."""

from typing import Any

import numpy as np
import pytest

from uncork import Service
from uncork.openai import embeddings, rerank
from uncork.testing import client
from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.wire.values import DefinitionError


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ([[1.0]], "must return vectors and the number of tokens of each text, got list"),
        (([[1.0], [2.0]], [1]), "2 vectors and 1 number of tokens were returned for 1 text"),
        (([1.0], [1]), "a vector must have one axis"),
        (([[float("nan")]], [1]), "a vector has a value that is NaN or infinite"),
        (([[1.0]], [1.5]), "a number of tokens must be whole, got 1.5"),
        (([[1.0]], np.array([np.nan])), "a number of tokens must be whole, got nan"),
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


@pytest.mark.parametrize(
    ("scores", "says"), [([1, 2], "2 scores were returned for 1 pair"), ([float("nan")], "finite")]
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
