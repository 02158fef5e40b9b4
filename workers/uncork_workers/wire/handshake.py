"""The handshake on TCP, before the first frame: both sides prove that they know the same token.

    worker                           gateway
             <------------------ Challenge      a nonce, and the gateway's protocol and version
      Application ------------->                 a nonce, and the proof over both nonces
             <-------------------- Welcome      the gateway's proof, and settings; frames follow
             <-------------------- Refusal      instead of Welcome; the connection is closed

The token itself is never sent. A proof is an HMAC over the role, the nonce of the challenge and the whole
message that has the proof, so neither a recorded proof nor the peer's own one is accepted, and nobody in
between can change which launch, instance or standby a worker is, or the settings that it gets. The frames
that follow have no proofs: only TLS protects them from somebody in between. Messages are framed as in
:mod:`uncork_workers.wire.frames`, without payload, and are small: the gateway reads them from peers that have
not proved anything yet.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import msgspec

from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.overrides import Override

PROTOCOL = 11
"""Changes whenever a message changes such that the other side would misread it."""
NONCE_BYTES = 32
MAX_APPLICATION_BYTES = 4096
MAX_WELCOME_BYTES = 2**20
LEAST_TOKEN_BYTES = 16
TOKEN_VARIABLE = "UNCORK_WORKER_TOKEN"
"""Environment variable with the token of a worker that the supervisor launched."""
CERTIFICATE_VARIABLE = "UNCORK_WORKER_CERTIFICATE"
"""Environment variable with the certificate (PEM) of the gateway of such a worker, for TLS."""

_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Instance = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]

RefusalReason = Literal["protocol", "token", "invalid", "timeout", "too_many", "tls"]


class Challenge(msgspec.Struct, tag="challenge", frozen=True):
    """The gateway's first message."""

    nonce: _Nonce
    protocol: int
    version: _Name


class Application(msgspec.Struct, tag="application", frozen=True):
    """The worker's answer to a challenge.

    Attributes:
        instance: identifies the process, also when it connects again.
        launch: which launch of the gateway's supervisor started it; None if something else did. The proof of
            a launch is made with its :func:`launch_token`.
        standby: whether the supervisor launched it to take over from another process.
    """

    nonce: _Nonce
    proof: bytes
    protocol: int
    version: _Name
    instance: _Instance
    launch: int | None = None
    standby: bool = False


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The gateway accepts the worker.

    Attributes:
        index: the number of a worker that the supervisor did not launch.
        overrides: overrides of ``@api`` arguments.
        warmup_seconds: most seconds to spend on the warm-up; 0 skips it.
    """

    proof: bytes
    index: int
    overrides: list[Override] = []
    warmup_seconds: float = 0.0


class Refusal(msgspec.Struct, tag="refusal", frozen=True):
    """The gateway refuses the worker; ``message`` says why, for people."""

    reason: RefusalReason
    message: str


Greeting = Challenge | Application | Welcome | Refusal

_LENGTHS = struct.Struct("!II")
HEAD_BYTES = _LENGTHS.size
_encoder = msgspec.msgpack.Encoder()
G = TypeVar("G", bound=Greeting)


P = TypeVar("P", Application, Welcome)


def with_worker_proof(token: bytes, challenge: bytes, application: Application) -> Application:
    """Return the application with the proof that the worker knows the token, given the gateway's nonce."""
    return _with_proof(token, b"worker" + challenge, application)


def with_gateway_proof(token: bytes, challenge: bytes, nonce: bytes, welcome: Welcome) -> Welcome:
    """Return the welcome with the proof that the gateway knows the token, given both nonces."""
    return _with_proof(token, b"gateway" + challenge + nonce, welcome)


def launch_token(secret: bytes, launch: int) -> bytes:
    """Return the token of the one worker process that the gateway's supervisor started with this number.

    It proves which launch a worker is: other workers, which know another token, cannot claim it.
    """
    return hmac.digest(secret, f"launch {launch}".encode(), hashlib.sha256).hex().encode()


def is_same(proof: bytes, expected: bytes) -> bool:
    """Compare proofs in a time that says nothing about where they differ."""
    return hmac.compare_digest(proof, expected)


def _with_proof(token: bytes, about: bytes, message: P) -> P:
    bare = _encoder.encode(msgspec.structs.replace(message, proof=b""))
    # As the other side reads it: 60 seconds are sent as an integer, but read as a float.
    read = msgspec.msgpack.decode(bare, type=type(message))
    proof = hmac.digest(token, b"uncork worker" + about + _encoder.encode(read), hashlib.sha256)
    return msgspec.structs.replace(message, proof=proof)


def encode_greeting(greeting: Greeting) -> bytes:
    header = _encoder.encode(greeting)
    return _LENGTHS.pack(len(header), 0) + header


def greeting_length(head: bytes, *, most: int) -> int:
    """Return the bytes that follow the first :data:`HEAD_BYTES` of a message.

    Raises:
        FrameError: if they are more than ``most``, or not those of a handshake.
    """
    length, payload = _LENGTHS.unpack(head)
    if payload or length > most:
        raise FrameError("the peer does not speak Uncork's worker protocol")
    return int(length)


def decode_greeting(header: bytes, expected: type[G]) -> G | Refusal:
    """Decode a message of the handshake: the expected one or a refusal.

    Raises:
        FrameError: if it is neither.
    """
    try:
        return msgspec.msgpack.decode(header, type=expected | Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"the peer does not speak Uncork's worker protocol: {error}") from error


def printable(text: str) -> str:
    """Return a text of a stranger such that it cannot forge lines of a log or control a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def read_token(text: str) -> bytes:
    """Return the token in the content of a token file.

    Raises:
        ValueError: if it is too short to be a secret.
    """
    token = text.strip().encode()
    if len(token) < LEAST_TOKEN_BYTES:
        raise ValueError(
            f"the token has {len(token)} bytes, it must have at least {LEAST_TOKEN_BYTES}; make one with: "
            "openssl rand -hex 32"
        )
    return token


Receive = Callable[[int], bytes]
"""Reads exactly so many bytes."""


def read_greeting(receive: Receive, expected: type[G], *, most: int) -> G | Refusal:
    """Read a message of the handshake: the expected one or a refusal.

    Raises:
        FrameError: if it is neither, or longer than ``most``.
    """
    length = greeting_length(receive(HEAD_BYTES), most=most)
    return decode_greeting(receive(length), expected)
