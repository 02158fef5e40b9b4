"""The messages of the handshake, and the proofs in them."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.messages import any_of
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import (
    HEAD_BYTES,
    LEAST_TOKEN_BYTES,
    MAX_APPLICATION_BYTES,
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
    is_same,
    printable,
    read_greeting,
    read_token,
    with_gateway_proof,
    with_worker_proof,
)
from uncork_workers.wire.overrides import for_all_apis

NONCES = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
GREETINGS = any_of(Greeting)


class Bytes:
    """Hands out received bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __call__(self, count: int) -> bytes:
        if len(self.data) < count:
            raise EOFError
        taken, self.data = self.data[:count], self.data[count:]
        return taken


@given(GREETINGS)
def test_a_greeting_survives_the_wire(greeting: Greeting) -> None:
    """Nothing that follows it is read."""
    received = Bytes(encode_greeting(greeting) + b"frames")

    assert read_greeting(received, type(greeting), most=2**20) == greeting
    assert received.data == b"frames"


@given(GREETINGS, st.sampled_from([Challenge, Application, Welcome]))
def test_only_the_expected_greeting_or_a_refusal_is_accepted(
    greeting: Greeting, expected: type[Challenge] | type[Application] | type[Welcome]
) -> None:
    received = Bytes(encode_greeting(greeting))
    if isinstance(greeting, (expected, Refusal)):
        assert read_greeting(received, expected, most=2**20) == greeting
    else:
        with pytest.raises(FrameError, match="does not speak Uncork's worker protocol"):
            read_greeting(received, expected, most=2**20)


@given(st.binary(max_size=100))
def test_the_header_of_a_stranger_is_a_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode_greeting(header, Application)


@pytest.mark.parametrize("head", [b"\0\0\x10\x01\0\0\0\0", b"\xff" * 8, b"\0\0\0\1\0\0\0\1"])
def test_a_greeting_is_small_and_has_no_payload(head: bytes) -> None:
    with pytest.raises(FrameError, match="does not speak"):
        greeting_length(head, most=MAX_APPLICATION_BYTES)
    assert greeting_length(b"\0\0\x10\0\0\0\0\0", most=MAX_APPLICATION_BYTES) == MAX_APPLICATION_BYTES


def test_the_largest_application_of_a_worker_fits() -> None:
    """All names at their limits, in characters of four bytes."""
    name = "\U0001f37e" * 256
    largest = Application(
        nonce=bytes(NONCE_BYTES), proof=bytes(32), protocol=2**63, version=name, instance=name, launch=2**63
    )

    assert len(encode_greeting(largest)) - HEAD_BYTES <= MAX_APPLICATION_BYTES


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        # The message of the proof would be ambiguous: bytes could move from one nonce to the other.
        *(({"nonce": bytes(size)}, r"\$.nonce") for size in (0, NONCE_BYTES - 1, NONCE_BYTES + 1)),
        ({"instance": ""}, r"\$.instance"),
    ],
)
def test_an_application_has_a_nonce_and_an_instance(fields: dict[str, Any], says: str) -> None:
    usual = {"nonce": bytes(NONCE_BYTES), "proof": b"", "protocol": 1, "version": "1", "instance": "one"}
    header = encode_greeting(Application(**{**usual, **fields}))[HEAD_BYTES:]
    with pytest.raises(FrameError, match=says):
        decode_greeting(header, Application)


TOKEN = b"t" * LEAST_TOKEN_BYTES


def applied(token: bytes, challenge: bytes, **fields: Any) -> bytes:
    usual: dict[str, Any] = {
        "nonce": bytes(NONCE_BYTES),
        "protocol": PROTOCOL,
        "version": "1",
        "instance": "one",
    }
    message = Application(proof=b"", **{**usual, **fields})
    return with_worker_proof(token, challenge, message).proof


def welcomed(token: bytes, challenge: bytes, nonce: bytes, **fields: Any) -> bytes:
    usual: dict[str, Any] = {"index": 0}
    message = Welcome(proof=b"", **{**usual, **fields})
    return with_gateway_proof(token, challenge, nonce, message).proof


@given(NONCES, NONCES)
def test_a_proof_is_for_one_token_role_and_pair_of_nonces(challenge: bytes, nonce: bytes) -> None:
    other = b"u" * LEAST_TOKEN_BYTES
    proof = applied(TOKEN, challenge, nonce=nonce)
    changed = bytes([challenge[0] ^ 1]) + challenge[1:]
    forged = [
        welcomed(TOKEN, challenge, nonce),
        applied(other, challenge, nonce=nonce),
        applied(TOKEN, changed, nonce=nonce),
        applied(TOKEN, challenge, nonce=changed),
        proof[:-1],
        b"",
    ]

    assert is_same(proof, applied(TOKEN, challenge, nonce=nonce))
    assert not any(is_same(one, proof) for one in forged)


def test_a_proof_is_for_all_that_the_message_says() -> None:
    """Which process a worker is, and the settings that it gets."""
    zeros = bytes(NONCE_BYTES)
    applications: list[dict[str, Any]] = [
        {},
        {"launch": 1},
        {"launch": 2},
        {"standby": True},
        {"instance": "two"},
        {"version": "2"},
    ]
    welcomes: list[dict[str, Any]] = [
        {},
        {"index": 1},
        {"warmup_seconds": 1.0},
        {"overrides": list(for_all_apis({"policy": "none"}))},
    ]
    proofs = {applied(TOKEN, zeros, **fields) for fields in applications}
    proofs |= {welcomed(TOKEN, zeros, zeros, **fields) for fields in welcomes}

    assert len(proofs) == len(applications) + len(welcomes)


def test_a_proof_is_the_same_for_the_message_as_sent_and_as_read() -> None:
    zeros = bytes(NONCE_BYTES)
    welcome = Welcome(b"", 0, list(for_all_apis({"mb_max_batch_size": 7})), warmup_seconds=60)
    sent = with_gateway_proof(TOKEN, zeros, zeros, welcome)
    read = decode_greeting(encode_greeting(sent)[8:], Welcome)

    assert isinstance(read, Welcome)
    assert with_gateway_proof(TOKEN, zeros, zeros, read).proof == sent.proof


def test_a_token_is_the_stripped_text() -> None:
    assert read_token("  0123456789abcdef\n") == b"0123456789abcdef"


@pytest.mark.parametrize("text", ["", "0123456789abcde", f"{'': <40}\n"])
def test_a_token_that_is_too_short_is_told(text: str) -> None:
    says = rf"the token has {len(text.strip())} bytes, it must have at least 16; make one with: openssl rand"
    with pytest.raises(ValueError, match=says):
        read_token(text)


@given(st.text())
def test_text_of_a_stranger_is_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()


def test_printable_text_stays() -> None:
    assert printable(f"Grüße {string.punctuation}") == f"Grüße {string.punctuation}"
    assert printable("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
