"""The worker port: who is accepted, and what becomes of the others."""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.gateway.backends.listener_stage import LOOPS, run_on, worker_port
from tests.gateway.fake_worker import service
from tests.gateway.running import turns
from tests.gateway.worker_peer import NONCE, TOKEN, application, token_of
from tests.loops import SteppedLoop, run, until
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.handshake import (
    MAX_APPLICATION_BYTES,
    NONCE_BYTES,
    PROTOCOL,
    Application,
    Challenge,
    Refusal,
    Welcome,
    encode_greeting,
    with_gateway_proof,
)
from uncork_workers.wire.messages import Hello, Leaving, Ping, Ready
from uncork_workers.wire.overrides import for_all_apis

OTHER_NONCE = bytes(NONCE_BYTES)


async def test_a_worker_that_knows_the_token_gets_its_settings_and_then_speaks_frames() -> None:
    overrides = for_all_apis({"mb_max_batch_size": 7})
    async with worker_port(overrides=overrides, warmup_seconds=2.5, reserved=3) as on:
        peer = await on.peer()
        challenge = await peer.challenge()
        assert (challenge.protocol, challenge.version) == (PROTOCOL, VERSION)
        peer.send(application(challenge))
        assert await peer.welcome() == with_gateway_proof(
            TOKEN, challenge.nonce, NONCE, Welcome(b"", 3, list(overrides), 2.5)
        )
        worker = peer.worker()
        worker.send(Hello(index=3, service=service(), host="far"))
        assert (await on.news.news.get())[0] == "described"
        worker.send(Ready())
        assert (await on.news.news.get())[0] == "stands by"
        on.pool.ping_idle()
        assert await worker.next() == Ping()

        assert (on.pool.states(), on.refusals) == (["starting"], [])
        [slot] = on.pool.slots()
        assert (slot.index, slot.host) == (3, "far")


async def test_an_application_may_arrive_in_pieces() -> None:
    async with worker_port() as on:
        peer = await on.peer()
        for byte in encode_greeting(application(await peer.challenge())):
            peer.send_bytes(bytes([byte]))
            await turns(2)
        await peer.welcome()


async def test_a_worker_with_another_token_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with worker_port() as on:
        peer = await on.peer()
        peer.send(application(await peer.challenge(), token=b"another token ..."))

        message = "the worker's token differs from the gateway's"
        assert await peer.refusal() == Refusal(reason="token", message=message)
        assert (on.refusals, on.pool.states()) == (["token"], [])
        assert await on.accepts_workers()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("refused a worker from 127.0.0.1 port ")
    assert record.getMessage().endswith(message)


def gateways_proof(challenge: Challenge) -> bytes:
    """One that another gateway with this token computed for a peer that relays the nonces."""
    return with_gateway_proof(TOKEN, challenge.nonce, NONCE, Welcome(b"", 0)).proof


@pytest.mark.parametrize(
    "made",
    [
        lambda earlier, now: application(earlier),
        lambda earlier, now: application(now, proof=gateways_proof(now)),
        lambda earlier, now: application(now, proof=application(now, nonce=OTHER_NONCE).proof),
        # Which process it is, and whether it may get batches at once.
        lambda earlier, now: msgspec.structs.replace(application(now), instance="another"),
        lambda earlier, now: msgspec.structs.replace(application(now), standby=True),
        lambda earlier, now: msgspec.structs.replace(application(now), version="0"),
        lambda earlier, now: msgspec.structs.replace(application(now), launch=1),
    ],
    ids=["recorded", "the gateway's", "other nonce", "instance", "standby", "version", "launch"],
)
async def test_a_proof_of_something_else_is_refused(
    made: Callable[[Challenge, Challenge], Application],
) -> None:
    async with worker_port() as on:
        earlier = await (await on.peer()).challenge()
        peer = await on.peer()
        peer.send(made(earlier, await peer.challenge()))

        assert (await peer.refusal()).reason == "token"


def head(header: int, payload: int = 0) -> bytes:
    return struct.pack("!II", header, payload)


@pytest.mark.parametrize(
    "sent",
    [
        head(MAX_APPLICATION_BYTES + 1),
        head(2**32 - 1),
        head(10, 1),
        b"GET / HTTP/1.1\r\n\r\n",
        head(3) + b"\xff\xff\xff",
        encode_greeting(Challenge(NONCE, PROTOCOL, VERSION)),
        encode_frame(Hello(index=0, service=service())),
    ],
)
async def test_a_stranger_is_refused_at_once(sent: bytes) -> None:
    """Before it has sent what it announces: the gateway waits for 4 KiB at most."""
    async with worker_port() as on:
        peer = await on.peer()
        await peer.challenge()
        peer.send_bytes(sent)

        refusal = await peer.refusal()
        assert refusal.reason == "invalid"
        assert refusal.message.startswith("the peer does not speak Uncork's worker protocol")
        assert on.refusals == ["invalid"]
        assert await on.accepts_workers()


async def test_a_worker_must_wait_for_its_welcome() -> None:
    """What it sends with its proof could be of somebody who replays it."""
    async with worker_port() as on:
        peer = await on.peer()
        challenge = await peer.challenge()
        hello = encode_frame(Hello(index=0, service=service()))
        peer.send_bytes(encode_greeting(application(challenge)) + hello)

        assert (await peer.refusal()).message == "the worker sent more before it was welcome"
        assert (on.refusals, on.pool.states()) == (["invalid"], [])


def advance(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    loop.advance(seconds)


def test_a_silent_peer_is_refused() -> None:
    """Also one that sends a byte now and then."""

    async def scenario() -> None:
        async with worker_port() as on:
            silent, slow = await on.peer(), await on.peer()
            await slow.challenge()
            await silent.challenge()
            for _ in range(2):
                slow.send_bytes(b"\0")
                advance(2.4)
                await turns(20)
            assert on.refusals == []
            advance(0.3)
            refusal = Refusal(reason="timeout", message="no handshake within 5 s")
            assert await silent.refusal() == await slow.refusal() == refusal
            assert on.refusals == ["timeout"] * 2

    run(scenario(), loop_factory=SteppedLoop)


def test_a_worker_that_was_accepted_may_be_silent() -> None:
    """Importing its code may take long."""

    async def scenario() -> None:
        async with worker_port() as on:
            worker, index = await on.dial()
            advance(1000)
            await turns(20)
            worker.send(Hello(index=index, service=service()))
            assert (await on.news.news.get())[0] == "described"
            assert on.refusals == []

    run(scenario(), loop_factory=SteppedLoop)


async def test_a_worker_with_another_protocol_is_refused_with_both_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether or not its proof is right, which may be computed in another way."""
    async with worker_port() as on:
        peer = await on.peer()
        peer.send(application(await peer.challenge(), protocol=99, version="9.9", proof=b""))
        refusal = await peer.refusal()

        assert refusal.reason == "protocol"
        assert refusal.message == (
            f"the gateway (uncork {VERSION}) speaks worker protocol {PROTOCOL}, the worker (uncork 9.9) "
            "speaks 99; install the same version on both sides"
        )
        assert on.refusals == ["protocol"]
    assert refusal.message in caplog.text


async def test_a_worker_may_refuse_the_gateway(caplog: pytest.LogCaptureFixture) -> None:
    """As when its protocol is another one; the gateway's log says why."""
    async with worker_port() as on:
        peer = await on.peer()
        await peer.challenge()
        peer.send(Refusal(reason="protocol", message="it speaks 1, I speak 2"))

        assert (await peer.refusal()).reason == "protocol"
        assert on.refusals == ["protocol"]
    assert "the worker refuses this gateway: it speaks 1, I speak 2" in caplog.text


async def test_other_versions_are_accepted_with_one_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    async with worker_port() as on:
        for number, version in enumerate([VERSION, "9.8", "9.9", "9.8"]):
            await on.dial(instance=f"{number}", version=version)

        assert on.pool.states() == ["starting"] * 4
    advice = f"the gateway has {VERSION}; install the same version on both sides"
    assert [record.getMessage() for record in caplog.records] == [
        f"a worker has uncork {version}, {advice}" for version in ("9.8", "9.9")
    ]


async def test_the_oldest_of_too_many_handshakes_makes_room() -> None:
    """So peers that say nothing cannot keep workers out. Workers that were accepted do not count."""
    async with worker_port() as on:
        await on.dial(instance="first")
        peers = [await on.peer() for _ in range(65)]
        for peer in peers:
            await peer.challenge()
        message = "64 newer handshakes are pending"
        assert await peers[0].refusal() == Refusal(reason="too_many", message=message)
        assert on.refusals == ["too_many"]
        peers[1].close()
        await until(lambda: len(on.listener.introductions) == 63)
        assert await on.accepts_workers()
        assert on.refusals == ["too_many"]
        for _ in range(100):
            await (await on.peer()).challenge()
        assert await on.accepts_workers()
        assert on.refusals == ["too_many"] * 101
        assert len(on.listener.introductions) == 63


@pytest.mark.parametrize("token", [TOKEN, token_of(2)])
async def test_a_launch_cannot_be_claimed(token: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Neither by a worker that something else started, nor by another launch."""
    async with worker_port() as on:
        launched, _ = await on.dial(instance="launch 1", launch=1)
        peer = await on.peer()
        peer.send(application(await peer.challenge(), token=token, launch=1, instance="launch 1"))

        message = "the worker is not launch 1 of this gateway"
        assert await peer.refusal() == Refusal(reason="token", message=message)
        assert on.refusals == ["token"]
        launched.send(Hello(index=0, launch=1, service=service()))
        assert (await on.news.news.get())[0] == "described"
    assert message in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_vanishes_leaves_nothing(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Before it is accepted, in the middle of the handshake, and when it would be refused."""

    async def scenario() -> None:
        async with worker_port() as on:
            for _ in range(3):
                reset(on.address)
                await turns(20)
            peer = await on.peer()
            peer.send_bytes(head(100)[:5])
            await peer.challenge()
            peer.abort()
            await turns(20)
            for peer in [await on.peer() for _ in range(64)]:
                await peer.challenge()
            reset(on.address)
            await turns(20)
            assert set(on.refusals) <= {"too_many"}
            assert on.pool.states() == []

    run_on(loop, scenario())
    assert "Traceback" not in caplog.text


def reset(address: tuple[str, int]) -> None:
    """Connect, and reset the connection before the gateway accepts it."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def test_a_stranger_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    forged = "x\n2026-01-01 ERROR gateway: all is lost\x1b[31m"
    async with worker_port() as on:
        for answer in (
            Refusal(reason="protocol", message=forged),
            application(await (await on.peer()).challenge(), protocol=99, version=forged),
        ):
            peer = await on.peer()
            await peer.challenge()
            peer.send(answer)
            await peer.refusal()
        other = await on.peer()
        other.send(application(await other.challenge(), version=forged))
        await other.welcome()
        other.send_bytes(encode_frame(Hello(index=0, service=service(), host=forged)))
        other.send_bytes(encode_frame(Leaving()))
        await until(lambda: any("leaving" in message for message in caplog.messages))
    assert len(caplog.records) == 4
    assert all(record.getMessage().isprintable() for record in caplog.records)


@at_most(40)
@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4))
@example([head(0)])
@example([head(1) + b"\x80"])
@example([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_whatever_a_stranger_sends_the_next_worker_is_accepted(pieces: list[bytes]) -> None:
    async def scenario() -> None:
        async with worker_port() as on:
            peer = await on.peer()
            await peer.challenge()
            for piece in pieces:
                peer.send_bytes(piece)
                await turns(3)
            assert set(on.refusals) <= {"invalid"}
            assert on.pool.states() == []
            assert await on.accepts_workers()

    run(scenario())


async def test_a_port_that_closes_ends_its_handshakes() -> None:
    """Workers that were accepted stay until the pool closes."""
    async with worker_port() as on:
        peer = await on.peer()
        await peer.challenge()
        worker, _ = await on.dial()
        on.listener.close()
        await peer.closed()
        with pytest.raises(OSError, match=r"."):
            await on.peer()
        worker.send(Hello(index=0, service=service()))
        assert (await on.news.news.get())[0] == "described"


class FullOnce(socket.socket):
    """A listening socket that fails once, as without free file descriptors."""

    failed = False

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failed:
            return super().accept()
        self.failed = True
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_failure_to_accept_is_logged_and_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listening = FullOnce()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        async with worker_port(listening=listening) as on:
            accepts = asyncio.create_task(on.accepts_workers())
            while not caplog.messages:
                await turns(1)
            advance(1)
            assert await accepts

    run(scenario(), loop_factory=SteppedLoop)
    assert caplog.messages == ["cannot accept workers at present: Too many open files"]
