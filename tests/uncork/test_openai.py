"""APIs of text models end to end: requests of each kind of client, shared batches, wrong requests."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uncork import Service, context
from uncork.openai import Pair, embeddings, rerank
from uncork.outputs import Rejected
from uncork.testing import Client, client

MOST_BYTES = 100
BATCHES: dict[str, int] = {}
"""The rows of each batch for embeddings."""


def vector(text: str | list[int]) -> list[float]:
    """Return a vector that tells texts apart, of any length."""
    return [3.0, 4.0, float(len(text)), float(ord(text[0]) if isinstance(text, str) else text[0])]


def unit(text: str | list[int], dimensions: int = 4) -> list[float]:
    cut = np.array(vector(text)[:dimensions])
    return (cut / np.linalg.norm(cut)).tolist()  # type: ignore[no-any-return]


class Texts(Service):
    """A service of both tasks, whose routes have the names of TEI's."""

    @embeddings(mb_max_batch_size=MOST_BYTES)
    def embed(self, inputs: list[str | list[int]]) -> Any:
        """Embed texts. Those that begin with ! are rejected, unless they may be truncated."""
        BATCHES[context().batch_id] = context().rows
        rows = [
            Rejected(413, "too long") if one[0] == "!" and "truncate" not in parameters else vector(one)
            for one, parameters in zip(inputs, context().parameters, strict=True)
        ]
        return rows, list(map(len, inputs))

    @rerank(mb_max_latency=60_000)  # a busy machine needs long for 40,000 texts
    async def rerank(self, pairs: list[Pair]) -> Any:
        """Score texts by their length minus the length of the query."""
        return np.array([len(pair.text) - len(pair.query) for pair in pairs], np.float32)


@pytest.fixture(scope="module")
def texts() -> Iterator[Client]:
    with client(Texts) as made:
        yield made


def embed(texts: Client, path: str = "/v1/embeddings", **body: Any) -> Any:
    reply = texts.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def error_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["message"]


@pytest.mark.parametrize("given", ["one", ["one"], ["one", "two", "é"], [5, 6], [[5, 6], [7]], ["one", [5]]])
def test_openais_requests(texts: Client, given: Any) -> None:
    many = given if isinstance(given, list) and not isinstance(given[0], int) else [given]

    found = embed(texts, input=given, model="m", user="u")

    assert [one["embedding"] for one in found["data"]] == [pytest.approx(unit(each)) for each in many]
    tokens = sum(map(len, many))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (found["object"], found["model"]) == ("list", "m")
    assert [(one["object"], one["index"]) for one in found["data"]] == [
        ("embedding", at) for at in range(len(many))
    ]


def test_vectors_may_be_base64_cut_or_of_any_length(texts: Client) -> None:
    [data] = embed(texts, input="one", encoding_format="base64", dimensions=2)["data"]
    assert np.frombuffer(base64.b64decode(data["embedding"]), "<f4") == pytest.approx([0.6, 0.8])

    assert embed(texts, "/embed", inputs=["one", "two"], dimensions=2) == [pytest.approx([0.6, 0.8])] * 2
    assert embed(texts, "/embed", inputs="one", normalize=False) == [vector("one")]


def test_requests_of_all_clients_share_batches() -> None:
    """Also rejected ones, and those that want another form.

    The texts have one length, because a model that may pad gets others in batches of their own. The policy
    waits: requests whose heads are known are submitted a turn of the event loop later than others.
    """
    bodies: list[tuple[str, Any]] = [
        ("/v1/embeddings", {"input": ["one"], "encoding_format": "base64"}),
        ("/embed", {"inputs": ["abc"]}),
        ("/embed", {"inputs": ["!ab", "bcd"]}),
        ("/embed", {"inputs": ["!ab"], "truncate": True}),
        ("/v1/embeddings", {"input": "abc", "dimensions": 5}),
        ("/embed", "own"),
        ("/v1/models/texts.embed:predict", {"instances": ["one", [5, 6]]}),
    ]

    with client(Texts, policy="fixed:1000") as texts:
        replies = texts.send_all([texts.build_request("POST", path, json=body) for path, body in bodies])

    assert {reply.headers.get("x-batch-id") for reply in replies if reply.status_code == 200} == {
        replies[0].headers["x-batch-id"]
    }
    assert replies[1].json() == [pytest.approx(unit("abc"))]
    assert error_of(replies[2]) == (413, "too long")
    assert replies[3].json() == [pytest.approx(unit("!ab"))]
    assert error_of(replies[4]) == (400, "dimensions must be at most 4, got 5")
    assert replies[5].json() == {"embedding": pytest.approx(unit("own")), "tokens": 3}
    assert [row["tokens"] for row in replies[6].json()["predictions"]] == [3, 2]


def test_a_batch_of_rejected_texts(texts: Client) -> None:
    assert error_of(texts.post("/v1/embeddings", json={"input": "!"})) == (413, "too long")


def test_tensors_get_one_array(texts: Client) -> None:
    body = {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["one", "three"]}]}

    outputs = texts.post("/v2/models/texts.embed/infer", json=body).json()["outputs"]

    found = {output["name"]: output for output in outputs}
    assert found["embedding"]["shape"] == [2, 4]
    assert found["embedding"]["data"] == pytest.approx(unit("one") + unit("three"))
    assert found["tokens"]["data"] == [3, 5]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"dimensions": "2"}, "Expected `int | null`, got `str` - at `$.dimensions`"),
        ({"dimensions": -2}, "Expected `int` >= 1"),
        ({"normalize": "no"}, "Expected `bool`"),
        ({"encoding_format": "hex"}, "Invalid enum value 'hex'"),
    ],
)
def test_parameters_of_other_protocols_are_checked(texts: Client, parameters: Any, says: str) -> None:
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["one"]}

    reply = texts.post("/v2/models/texts.embed/infer", json={"inputs": [tensor], "parameters": parameters})

    assert reply.status_code == 400
    assert says in reply.json()["error"]


def test_a_large_request_leaves_room_for_others(texts: Client) -> None:
    BATCHES.clear()

    assert len(embed(texts, "/embed", inputs=["eight"] * 99)) == 99

    assert sum(BATCHES.values()) == 99
    assert max(BATCHES.values()) * len('"eight"') <= MOST_BYTES


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="!"), min_size=1), min_size=1
    )
)
def test_large_requests_run_in_parts_and_are_joined_in_order(texts: Client, given: list[str]) -> None:
    reply = texts.post("/embed", json={"inputs": given})

    assert reply.json() == [pytest.approx(unit(text)) for text in given]


def test_a_request_may_have_more_bytes_than_20_batches(texts: Client) -> None:
    body = {"query": "q", "texts": ["eight..."] * 40_000}

    reply = texts.post("/rerank", json=body)
    assert reply.status_code == 200, reply.text
    assert len(reply.json()) == 40_000


def test_parts_of_a_request_have_its_headers_and_id() -> None:
    seen: list[tuple[str | None, ...]] = []

    class Tenants(Service):
        @embeddings(headers=["x-tenant", "x-request-id"], mb_max_batch_size=10)
        def embed(self, inputs: list[str]) -> Any:
            """Note whose texts these are."""
            seen.extend(zip(*context().headers.values(), strict=True))
            return [[1.0]] * len(inputs), [1] * len(inputs)

    with client(Tenants) as made:
        embed(made, input=["eight"] * 3, user="u")
        seen.clear()
        reply = made.post(
            "/embed", json={"inputs": ["eight"] * 3}, headers={"x-tenant": "a", "x-request-id": "b"}
        )

    assert reply.status_code == 200
    assert seen == [("a", "b")] * 3


def test_the_documentation_has_all_routes(texts: Client) -> None:
    paths = texts.get("/openapi.json").json()["paths"]

    assert {"/embed", "/v1/embeddings", "/rerank", "/v1/rerank"} <= paths.keys()
    schema = paths["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"input", "inputs", "dimensions", "encoding_format"} <= schema["properties"].keys()
    names = [one["post"]["operationId"] for one in paths.values() if "post" in one]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/embeddings", {"input": []}, "'input' must have at least one text"),
        ("/embed", {"inputs": ["a", ""]}, "Expected `str` of length >= 1 - at `$.inputs[1]`"),
        ("/embed", {"inputs": ["a", 3]}, "Expected `str | array`, got `int` - at `$.inputs[1]`"),
        ("/embed", {"inputs": [3, "a"]}, "Expected `int`, got `str` - at `$.inputs[1]`"),
        ("/embed", {"inputs": [-3]}, "Expected `int` >= 0 - at `$.inputs[0]`"),
        ("/embed", {"inputs": 3}, "Expected `str | array`, got `int` - at `$.inputs`"),
        ("/embed", {"inputs": "a", "input": "a"}, "either 'input' or 'inputs', got both"),
        ("/embed", {}, "either 'input' or 'inputs', got neither"),
        ("/embed", {"inputs": "a", "dimensions": 0}, "Expected `int` >= 1 - at `$.dimensions`"),
        ("/rerank", {"texts": ["a"]}, "the body must have a 'query', a text"),
        ("/rerank", {"query": "a", "texts": "b"}, "'texts' must be a list of texts"),
        ("/rerank", {"query": "a", "texts": []}, "'texts' must have at least one text"),
        ("/rerank", {"query": "a", "texts": ["b", 5]}, "got `int` - at `$.texts[1]`"),
        ("/rerank", {"query": 5, "texts": ["b"]}, "got `int` - at `$.query`"),
        ("/rerank", {"query": "a", "texts": ["b"], "raw_scores": True}, "raw_scores is not supported"),
        (
            "/rerank",
            {"query": "a", "documents": [{"title": "b"}]},
            "documents[0] must be an object with a 'text'",
        ),
        ("/rerank", {"query": "a"}, "missing required field `text`"),
        ("/rerank", {"query": "a" * 2**20, "texts": ["b"] * 9}, "send a shorter query, or fewer texts"),
    ],
)
def test_wrong_requests_say_what_is_accepted(texts: Client, path: str, body: Any, says: str) -> None:
    status, message = error_of(texts.post(path, json=body))

    assert status == 400
    assert says in message


def test_a_body_that_is_not_json(texts: Client) -> None:
    for body in (b'{"inputs": ["a"]', b'{"inputs": "\xff"}', b'{"inputs": ["\xff"]}'):
        reply = texts.post("/embed", content=body, headers={"content-type": "application/json"})
        assert error_of(reply)[0] == 400


def test_documents_are_ranked(texts: Client) -> None:
    documents = ["bb", {"text": "dddd"}, "ccc"]
    body = {"query": "q", "documents": documents, "model": "m"}

    ranked = texts.post("/v1/rerank", json=body).json()
    top = texts.post("/rerank", json={**body, "top_n": 1, "return_documents": True}).json()

    assert ranked == {
        "model": "m",
        "results": [{"index": at, "relevance_score": score} for at, score in ((1, 3), (2, 2), (0, 1))],
    }
    assert top["results"] == [{"index": 1, "relevance_score": 3, "document": {"text": "dddd"}}]


def test_texts_are_ranked(texts: Client) -> None:
    body = {"query": "q", "texts": ["bb", "dddd"]}

    assert texts.post("/rerank", json=body).json() == [{"index": 1, "score": 3}, {"index": 0, "score": 1}]
    assert texts.post("/rerank", json={**body, "return_text": True}).json()[0] == {
        "index": 1,
        "score": 3,
        "text": "dddd",
    }
    assert texts.post("/rerank", json={"query": "q", "text": "bbb"}).json() == 2
