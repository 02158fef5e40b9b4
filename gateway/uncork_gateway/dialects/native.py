"""Our own routes: a body in the form of the api's input, problem documents for errors."""

from __future__ import annotations

from collections.abc import Sequence

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.dialects.base import JSON, Reply, RowsReply, content_type
from uncork_gateway.errors import UnsupportedMediaType, problem
from uncork_gateway.http import Header

_JSON_TYPES = ("", "application/json")
_PROBLEM = b"content-type: application/problem+json\r\n"


class Native:
    """The dialect of our own routes."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def keep(self, headers: Sequence[Header]) -> tuple[Header, ...]:
        """Nothing is needed; JSON is taken, and what is not said to be anything."""
        kind = content_type(headers)
        if kind not in _JSON_TYPES:
            raise UnsupportedMediaType(f"content type {kind!r} is not accepted; send application/json")
        return ()

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """The codec knows the body."""
        return self._codec.decode(body)

    def write(self, reply: RowsReply, asked: Marshalled, *, batch_id: str) -> Reply:
        """The codec knows the answer's form."""
        return Reply(JSON, self._codec.encode(reply.body, single=asked.single))

    def error(self, status: int, detail: str) -> Reply:
        """A problem document."""
        return Reply(_PROBLEM, problem(status, detail))
