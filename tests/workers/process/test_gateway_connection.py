"""A worker's end of its socket while it streams."""

import socket
from collections.abc import Iterator

import pytest

from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.frames import Frame, FrameDecoder, encode_frame
from uncork_workers.wire.messages import AnswerHead, Batch, Cancel, Message, Piece, Ping, Pong

BATCH = Batch(batch=1, api="a", limit_rows=9, lengths=[1], rows=[1])
HEAD = AnswerHead(status=200, content_type="text/plain")


class Gateway:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, *messages: Message) -> None:
        bodies = ([b"x"] if isinstance(message, Batch) else [] for message in messages)
        self.connection.sendall(b"".join(map(encode_frame, messages, bodies)))

    def frames(self) -> list[Frame]:
        return list(FrameDecoder().feed(self.connection.recv(65536)))


@pytest.fixture
def ends() -> Iterator[tuple[GatewayConnection, Gateway]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        yield GatewayConnection(theirs), Gateway(ours)


def test_pieces_are_frames(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    link.send_piece(1, HEAD, b"ab")
    link.send_piece(1, None, b"")

    assert gateway.frames() == [Frame(Piece(1, HEAD), b"ab"), Frame(Piece(1), b"")]


def test_a_cancel_is_noticed_when_it_comes(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    gateway.send(BATCH)
    next(link.batches())
    assert not link.is_cancelled(1)
    gateway.send(Cancel(5))
    assert not link.is_cancelled(1)
    gateway.send(Cancel(1))
    assert link.is_cancelled(1)
    assert link.is_cancelled(1)


def test_a_cancel_may_come_with_its_batch_or_in_pieces(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    batches = link.batches()
    gateway.send(BATCH, Cancel(1))
    assert next(batches) == (BATCH, b"x")
    assert link.is_cancelled(1)
    again = Batch(batch=2, api="a", limit_rows=9, lengths=[1], rows=[1])
    gateway.send(again)
    assert next(batches) == (again, b"x")
    cancel = encode_frame(Cancel(2))
    gateway.connection.sendall(cancel[:9])
    assert not link.is_cancelled(2)
    gateway.connection.sendall(cancel[9:])
    assert link.is_cancelled(2)


def test_a_late_cancel_is_passed_over(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    batches = link.batches()
    gateway.send(Cancel(9), BATCH, Cancel(1))
    assert next(batches) == (BATCH, b"x")
    gateway.send(BATCH)
    gateway.connection.shutdown(socket.SHUT_WR)

    assert list(batches) == [(BATCH, b"x")]


def test_nobody_waits_when_the_gateway_has_gone(ends: tuple[GatewayConnection, Gateway]) -> None:
    """A lost connection cancels the stream and ends the batches, and does not raise in the handler."""
    link, gateway = ends
    batches = link.batches()
    gateway.send(BATCH)
    next(batches)
    gateway.connection.close()
    link.send_piece(1, HEAD, b"a")

    assert link.is_cancelled(1)
    assert list(batches) == []


def test_a_worker_that_waits_says_that_it_is_there(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    gateway.send(Ping(), Ping(), BATCH)

    assert next(link.batches()) == (BATCH, b"x")
    assert gateway.frames() == [Frame(Pong(), b""), Frame(Pong(), b"")]
