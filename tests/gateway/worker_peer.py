"""A peer of the worker port, which speaks the handshake rightly or wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, TypeVar

from tests.gateway.fake_worker import FakeWorker
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.handshake import (
    HEAD_BYTES,
    MAX_WELCOME_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Greeting,
    Refusal,
    Welcome,
    decode_greeting,
    encode_greeting,
    greeting_length,
    launch_token,
    with_gateway_proof,
    with_worker_proof,
)

TOKEN = b"0123456789abcdef"
LAUNCH_SECRET = b"fedcba9876543210"
NONCE = bytes(range(NONCE_BYTES))
G = TypeVar("G", bound=Greeting)
Address = tuple[str, int]


class Peer:
    """A connection to a worker port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: Address, tls: ssl.SSLContext | None = None) -> Peer:
        return cls(*await asyncio.open_connection(*address, ssl=tls))

    async def challenge(self) -> Challenge:
        challenge = await self._greeting(Challenge)
        assert isinstance(challenge, Challenge)
        return challenge

    async def welcome(self) -> Welcome:
        welcome = await self._greeting(Welcome)
        assert isinstance(welcome, Welcome), welcome
        return welcome

    async def refusal(self) -> Refusal:
        """Return why the gateway refuses; fail unless it closes the connection then."""
        refusal = await self._greeting(Welcome)
        assert isinstance(refusal, Refusal)
        await self.closed()
        return refusal

    async def closed(self) -> None:
        """Wait until the gateway closes the connection; fail if it sends anything."""
        with contextlib.suppress(ConnectionError):  # some of what was sent may be unread
            assert await self.reader.read() == b""
        self.close()

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, greeting: Greeting) -> None:
        self.send_bytes(encode_greeting(greeting))

    def worker(self) -> FakeWorker:
        """Return the worker at this end, which speaks frames now."""
        return FakeWorker(self.reader, self._writer)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _greeting(self, expected: type[G]) -> G | Refusal:
        head = await self.reader.readexactly(HEAD_BYTES)
        length = greeting_length(head, most=MAX_WELCOME_BYTES)
        return decode_greeting(await self.reader.readexactly(length), expected)


def token_of(launch: int | None) -> bytes:
    """Return the token of a worker that the supervisor launched, or of others."""
    return TOKEN if launch is None else launch_token(LAUNCH_SECRET, launch)


def application(challenge: Challenge, *, token: bytes | None = None, **fields: Any) -> Application:
    """Return a right answer to a challenge, or one with another ``token`` or other ``fields``."""
    right = {
        "nonce": NONCE,
        "proof": b"",
        "protocol": PROTOCOL,
        "version": VERSION,
        "instance": "an instance",
    }
    made = Application(**{**right, **fields})
    if "proof" in fields:
        return made
    return with_worker_proof(token or token_of(fields.get("launch")), challenge.nonce, made)


async def dial(
    address: Address, *, instance: str, tls: ssl.SSLContext | None = None, **fields: Any
) -> tuple[FakeWorker, Welcome]:
    """Connect a worker that knows the token."""
    peer = await Peer.connect(address, tls)
    challenge = await peer.challenge()
    peer.send(application(challenge, instance=instance, **fields))
    welcome = await peer.welcome()
    token = token_of(fields.get("launch"))
    assert welcome == with_gateway_proof(token, challenge.nonce, NONCE, welcome)
    return peer.worker(), welcome
