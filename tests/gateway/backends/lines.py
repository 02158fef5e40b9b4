"""The smallest protocol, whose rows are lines of text, and a model for it, which shouts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tests.gateway.backends.model_servers.fake_server import Call, Reply
from uncork_gateway.backends.model_servers.merged_calls import CallResult, Part, Sent
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.errors import BadGateway
from uncork_gateway.protocols.wire import Content, WrongReply

TEXT = (b"content-type", b"text/plain")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A request."""

    lines: tuple[bytes, ...]
    key: Hashable = None

    @property
    def rows(self) -> int:
        return len(self.lines)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.lines))


class LinesWire:
    """A reply has one line per line."""

    def parse(self, content: Content) -> Lines:
        return Lines(lines=tuple(content.body.split()))

    def cut(self, request: Lines, most_rows: int) -> list[Lines]:
        lines = request.lines
        return [Lines(lines=lines[at : at + most_rows]) for at in range(0, len(lines), most_rows)]

    def merge(self, requests: Sequence[Lines]) -> Content:
        return Content(b"\n".join(line for request in requests for line in request.lines), (TEXT,))

    def split(self, reply: Content, requests: Sequence[Lines]) -> list[bytes]:
        lines = reply.body.split()
        if len(lines) != sum(request.rows for request in requests):
            raise WrongReply(f"it has {len(lines)} lines")
        left = iter(lines)
        return [b" ".join(next(left) for _ in request.lines) for request in requests]

    def join(self, parts: Sequence[bytes]) -> bytes:
        return b" ".join(parts)

    def render(self, reply: bytes, request: Lines, *, batch_id: str) -> Content:
        return Content(reply, (TEXT,))


def sent(text: str, *, part: bool = False, expires_at: float = math.inf) -> Sent:
    """A request with one line per word, or a part of one."""
    body = text.encode()
    original = Content(body, (TEXT, (b"host", b"proxy"), (b"x-request-timeout-ms", b"1"), (b"x-of", body)))
    return Sent(
        request=LinesWire().parse(original),
        wire=LinesWire(),
        target=b"/shout?loud=1",
        headers=((b"authorization", b"me"),),
        original=None if part else original,
        expires_at=expires_at,
    )


def shout(call: Call) -> Reply:
    """Return capitals; a line that is a number makes the call fail with that status."""
    for line in call.body.split():
        if line.isdigit():
            return Reply(b"no: " + line, int(line), (TEXT, (b"x-of-the-call", b"1")))
    return Reply(call.body.upper(), 200, (TEXT, (b"x-of-the-call", b"1")))


def bodies(outcomes: Sequence[CallResult]) -> list[str]:
    """Return each request's lines, or the status and body of its relayed answer."""
    return [_body(one) for one in outcomes]


def _body(outcome: CallResult) -> str:
    match outcome:
        case ServerResponse():
            return f"{outcome.status} {outcome.body.decode()}"
        case BadGateway():
            return f"{outcome.status} {outcome}"
        case Part():
            return str(outcome.reply.decode())
