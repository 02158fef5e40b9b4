"""The routes of text models: embeddings as at OpenAI, reranking as at Cohere and Jina, and both as at TEI.

TEI is text-embeddings-inference. Each text becomes a row, so texts share batches with requests of other
protocols. The options of a request become parameters for the handler. Any other body is read as rows, as at
the routes of other APIs.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import JSON, HandlerResult, Reply
from uncork_gateway.dialects.native import Native
from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import Header
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.raw_json import (
    SPACE,
    check_utf8,
    elements,
    is_list,
    is_object,
    most_repeated_bytes,
    quoted,
)
from uncork_workers.wire.messages import RowPath, json_path

_Positive = Annotated[int, Meta(ge=1)]
_TOKEN_IDS = re.compile(rb"\[[ \t\r\n]*[-0-9]")
"""A list of numbers, which is one text."""
# A query is repeated for each of its texts.
_MOST_REPEATED_BYTES = 8 * 2**20
_Body = TypeVar("_Body", bound=Struct)


class EmbeddingsBody(Struct):
    """A request for embeddings: ``input`` as at OpenAI, or ``inputs`` as at TEI."""

    input: Raw | UnsetType = UNSET
    inputs: Raw | UnsetType = UNSET
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: _Positive | None = None
    normalize: bool = True
    truncate: bool | None = None


class RerankBody(Struct):
    """A request to rank texts: ``documents`` as at Cohere and Jina, or ``texts`` as at TEI."""

    query: str | UnsetType = UNSET
    documents: Raw | UnsetType = UNSET
    texts: Raw | UnsetType = UNSET
    model: str = ""
    top_n: _Positive | None = None
    return_documents: bool = False
    return_text: bool = False
    raw_scores: bool = False
    truncate: bool | None = None


class _Document(Struct):
    text: Raw


class _Embedding(Struct):
    embedding: Raw
    tokens: int


class _Asked(NamedTuple):
    """What the response depends on: the body, and the texts to be ranked."""

    body: Any
    texts: Sequence[bytes | Raw] = ()


_embeddings_decoder = msgspec.json.Decoder(EmbeddingsBody)
_rerank_decoder = msgspec.json.Decoder(RerankBody)
_document_decoder = msgspec.json.Decoder(_Document)
_results_decoder = msgspec.json.Decoder(list[_Embedding])
_scores_decoder = msgspec.json.Decoder(list[float])


class TextModel(Native):
    """The common part of both tasks.

    Args:
        codec, offers, errors: as for :class:`Native`.

    Attributes:
        asked: the type of a request.
    """

    asked: ClassVar[type[Struct]]

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        if reply.content_type or asked.note is None:
            return super().write(reply, asked, batch_id=batch_id)
        return JSON, msgspec.json.encode(self._answer(b"[%b]" % reply.body, asked.note))

    @abstractmethod
    def _answer(self, rows: bytes, asked: _Asked) -> Any:
        """Return the response to a request from its rows, a JSON list."""

    def _texts(self, name: str, listed: Raw) -> list[Raw]:
        """Return the texts in a list of the body."""
        self._codec.limits.check_items(listed)
        texts = elements(listed)
        if not texts:
            raise BadRequest(f"{name!r} must have at least one text")
        return texts

    def _marshal(
        self,
        rows: Sequence[bytes | Raw],
        asked: _Asked,
        parameters: Mapping[str, Any],
        locate: Callable[[Marshalled, RowPath], str],
    ) -> Marshalled:
        text = msgspec.json.encode(parameters) if parameters else b""
        marshalled = self._codec.marshal(rows)
        return replace(marshalled, note=asked, parameters=text, locate=locate, divisible=True)


class Embeddings(TextModel):
    """Embeddings of texts. A worker's row is an object with ``embedding`` and ``tokens``."""

    asked = EmbeddingsBody

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        if not _is_object(body):
            return super().read(body, headers)
        asked = _decoded(_embeddings_decoder, body)
        name, texts = _given(input=asked.input, inputs=asked.inputs)
        is_many = is_list(texts) and _TOKEN_IDS.match(texts) is None
        rows = self._texts(name, texts) if is_many else [texts]
        parameters = _changed(asked, "encoding_format", "dimensions", "normalize", "truncate")
        locate = partial(_in_list if is_many else _alone, name)
        return self._marshal(rows, _Asked(asked), parameters, locate)

    def _answer(self, rows: bytes, asked: _Asked) -> Any:
        results = _results_decoder.decode(rows)
        if asked.body.input is UNSET:
            return [one.embedding for one in results]
        data = [
            {"object": "embedding", "index": at, "embedding": one.embedding} for at, one in enumerate(results)
        ]
        usage = dict.fromkeys(("prompt_tokens", "total_tokens"), sum([one.tokens for one in results]))
        return {"object": "list", "data": data, "model": asked.body.model, "usage": usage}


class Rerank(TextModel):
    """The relevance of texts to a query. A worker's row is a number."""

    asked = RerankBody

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        asked = _decoded(_rerank_decoder, body) if _is_object(body) else RerankBody()
        if asked.documents is UNSET and asked.texts is UNSET:
            return super().read(body, headers)
        name, listed = _given(documents=asked.documents, texts=asked.texts)
        if asked.query is UNSET:
            raise BadRequest("the body must have a 'query', a text")
        if asked.raw_scores:
            raise BadRequest("raw_scores is not supported; send the request without it")
        if not is_list(listed):
            raise BadRequest(f"{name!r} must be a list of texts")
        texts = [
            decode_json(_document_decoder, one, "an object with a 'text'", name=f"{name}[{at}]").text
            if is_object(one)
            else one
            for at, one in enumerate(self._texts(name, listed))
        ]
        query, most = quoted(asked.query), min(_MOST_REPEATED_BYTES, most_repeated_bytes(len(body)))
        if len(query) * len(texts) > most:
            raise BadRequest(
                f"the query has {len(query)} bytes for each of {len(texts)} texts, more than {most} in "
                "total; send a shorter query, or fewer texts in one request"
            )
        rows = [b'{"query":%b,"text":%b}' % (query, text) for text in texts]
        locate = partial(_in_pairs, name)
        return self._marshal(rows, _Asked(asked, texts), _changed(asked, "truncate"), locate)

    def _answer(self, rows: bytes, asked: _Asked) -> Any:
        body, texts = asked
        scores = _scores_decoder.decode(rows)
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[: body.top_n]
        if body.documents is UNSET:
            return [
                {"index": at, "score": scores[at], **({"text": texts[at]} if body.return_text else {})}
                for at in best
            ]
        results = [
            {
                "index": at,
                "relevance_score": scores[at],
                **({"document": {"text": texts[at]}} if body.return_documents else {}),
            }
            for at in best
        ]
        return {"model": body.model, "results": results}


TEXT_MODELS: Mapping[str, type[TextModel]] = {"embeddings": Embeddings, "rerank": Rerank}
"""The dialect of an API's own routes, by its task."""


def _is_object(body: bytes) -> bool:
    return body.lstrip(SPACE)[:1] == b"{"


def _decoded(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    check_utf8(body)
    return decode_json(decoder, body, "a request")


def _given(**lists: Raw | UnsetType) -> tuple[str, Raw]:
    """Return the name and the value of the only member that the body has of these."""
    given = {name: value for name, value in lists.items() if not isinstance(value, UnsetType)}
    if len(given) != 1:
        found = "both" if given else "neither"
        raise BadRequest(f"the body must have either {' or '.join(map(repr, lists))}, got {found}")
    return next(iter(given.items()))


def _changed(body: Struct, *names: str) -> dict[str, Any]:
    """Return the members that differ from their defaults, and are not null."""
    defaults = type(body)()
    return {name: value for name in names if (value := getattr(body, name)) != getattr(defaults, name)}


def _in_list(name: str, _: Marshalled, place: RowPath) -> str:
    return json_path(name, place.row, *place.path)


def _alone(name: str, _: Marshalled, place: RowPath) -> str:
    return json_path(name, *place.path)


def _in_pairs(name: str, _: Marshalled, place: RowPath) -> str:
    return json_path("query") if place.path == ("query",) else json_path(name, place.row)
