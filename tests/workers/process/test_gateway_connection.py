"""A worker's end of its socket: while it waits, streams, and leaves."""

import contextlib
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest
import trustme

from tests.loops import HANG_S
from tests.workers.fake_gateway import Connection, server_tls
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire import frames
from uncork_workers.wire.frames import Frame, FrameError, encode_frame, split_payload
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Goodbye,
    Gpu,
    Gpus,
    Leaving,
    Message,
    Piece,
    Ping,
    Pong,
    Ready,
    Reply,
    TakeFile,
)
from uncork_workers.wire.shared_file import SharedFile, send_with_file

BATCH = Batch(batch=1, api="a", limit_rows=9, lengths=[1], rows=[1])
HEAD = AnswerHead(status=200, content_type="text/plain")


class Gateway(Connection):
    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.connection = connection

    def tell(self, *messages: Message) -> None:
        self.send(*((message, [b"x"] if isinstance(message, Batch) else []) for message in messages))

    def messages(self, count: int) -> list[Message]:
        return [self.next().message for _ in range(count)]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["unix", "tls"])
def ends(
    request: pytest.FixtureRequest, authority: trustme.CA
) -> Iterator[tuple[GatewayConnection, Gateway]]:
    ours, theirs = socket.socketpair()
    if request.param == "tls":
        client = ssl.create_default_context()
        authority.configure_trust(client)
        with ThreadPoolExecutor(1) as pool:
            accepting = pool.submit(server_tls(authority).wrap_socket, ours, server_side=True)
            theirs = client.wrap_socket(theirs, server_hostname="127.0.0.1")
            ours = accepting.result()
    with ours, theirs:
        yield GatewayConnection(theirs), Gateway(ours)


def has_left(link: GatewayConnection, batch: int) -> bool:
    return not link.look() or link.left(batch) == {0}


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def leaves_on_signal(ends: tuple[GatewayConnection, Gateway]) -> Iterator[None]:
    """SIGUSR1 makes the worker leave."""
    before = signal.signal(signal.SIGUSR1, lambda *_: ends[0].leave())
    yield
    signal.signal(signal.SIGUSR1, before)


def signal_main_thread() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


def test_pieces_are_frames(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    link.send_piece(1, HEAD, b"ab")
    link.send_piece(1, None, b"")

    assert [gateway.next() for _ in range(2)] == [Frame(Piece(1, HEAD), b"ab"), Frame(Piece(1), b"")]


def test_a_cancel_may_come_with_its_batch_or_in_pieces(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    batches = link.batches()
    gateway.tell(BATCH, Cancel(1, (0,)))
    assert next(batches) == (BATCH, [b"x"])
    assert has_left(link, 1)
    again = Batch(batch=2, api="a", limit_rows=9, lengths=[1], rows=[1])
    gateway.tell(again)
    assert next(batches) == (again, [b"x"])
    cancel = encode_frame(Cancel(2, (0,)))
    gateway.connection.sendall(cancel[:9])
    assert not has_left(link, 2)
    gateway.connection.sendall(cancel[9:])
    assert has_left(link, 2)


def test_a_late_cancel_is_passed_over(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    batches = link.batches()
    gateway.tell(Cancel(9, (0,)), BATCH, Cancel(1, (0,)))
    assert next(batches) == (BATCH, [b"x"])
    gateway.tell(BATCH)
    gateway.connection.shutdown(socket.SHUT_WR)

    assert list(batches) == [(BATCH, [b"x"])]


def test_threads_of_a_handler_may_ask_at_once(ends: tuple[GatewayConnection, Gateway]) -> None:
    """None of them waits for bytes, which may come only with the next batch."""
    link, gateway = ends
    gateway.tell(BATCH)
    next(link.batches())

    with ThreadPoolExecutor(4) as threads, gateway.connection:
        asked = [threads.submit(has_left, link, 1) for _ in range(2000)]
        assert not any(one.result(HANG_S) for one in asked)


def test_nobody_waits_when_the_gateway_has_gone(ends: tuple[GatewayConnection, Gateway]) -> None:
    """A lost connection cancels the stream and ends the batches, and does not raise in the handler."""
    link, gateway = ends
    batches = link.batches()
    gateway.tell(BATCH)
    next(batches)
    gateway.connection.close()
    link.send_piece(1, HEAD, b"a")

    assert has_left(link, 1)
    assert list(batches) == []


def test_output_of_the_gateway_that_awaits_no_answer_may_be_more_than_is_looked_at(
    ends: tuple[GatewayConnection, Gateway], thread: ThreadPoolExecutor
) -> None:
    """A worker that streams reads in small parts; none gets lost, also inside TLS."""
    link, gateway = ends
    batches = link.batches()
    gateway.tell(BATCH)
    next(batches)
    gateway.tell(*[Ping()] * 2000)
    assert not has_left(link, 1)
    gateway.tell(BATCH)
    reading = thread.submit(gateway.messages, 2000)

    assert next(batches) == (BATCH, [b"x"])
    assert reading.result() == [Pong()] * 2000


def test_a_worker_that_waits_leaves_at_once(
    ends: tuple[GatewayConnection, Gateway], thread: ThreadPoolExecutor, leaves_on_signal: None
) -> None:
    """A signal interrupts its wait; a second one changes nothing."""
    link, gateway = ends

    def talk() -> list[Message]:
        gateway.tell(Ping())
        said = gateway.messages(1)
        signal_main_thread()
        said += gateway.messages(1)
        signal_main_thread()
        gateway.tell(Ping())
        said += gateway.messages(1)
        gateway.connection.shutdown(socket.SHUT_WR)
        return said

    talking = thread.submit(talk)
    assert list(batches_until_the_end(link)) == []
    assert talking.result() == [Pong(), Leaving(), Pong()]


def test_a_worker_in_a_batch_leaves_after_its_reply(
    ends: tuple[GatewayConnection, Gateway], thread: ThreadPoolExecutor, leaves_on_signal: None
) -> None:
    link, gateway = ends
    gateway.tell(BATCH)
    batches = batches_until_the_end(link)
    next(batches)
    for _ in range(2):
        signal.raise_signal(signal.SIGUSR1)
    reply = Reply(1, True, 0.0, [200], [0], [])
    link.send(reply)

    def talk() -> list[Message]:
        said = gateway.messages(2)
        gateway.connection.shutdown(socket.SHUT_WR)
        return said

    talking: Future[list[Message]] = thread.submit(talk)
    assert list(batches) == []
    assert talking.result() == [reply, Leaving()]


def test_a_worker_that_has_left_still_runs_a_batch_that_was_under_way(
    ends: tuple[GatewayConnection, Gateway],
) -> None:
    link, gateway = ends
    gateway.tell(BATCH)
    link.leave()
    batches = link.batches()

    assert next(batches) == (BATCH, [b"x"])
    assert gateway.messages(1) == [Leaving()]


def batches_until_the_end(link: GatewayConnection) -> Iterator[tuple[Batch, list[bytes]]]:
    """Yield the batches until the gateway goes, which over TLS it may do without a word."""
    try:
        yield from link.batches()
    except ssl.SSLEOFError:
        return


@pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")
def test_large_batches_and_replies_go_through_a_file() -> None:
    """Small ones still go over the socket. Batches use the halves of the file in turn."""
    ours, theirs = socket.socketpair()
    file = SharedFile.create()
    sizes = [100_000, 70_000]
    large = Batch(batch=2, api="a", limit_rows=9, lengths=sizes, rows=[1, 1], in_file=True)
    reply = Reply(2, True, 0.1, [200], [], [])
    link = GatewayConnection(theirs)
    with ours, contextlib.closing(link):
        batches = link.batches()
        gateway = Gateway(ours)
        gateway.tell(BATCH)
        assert next(batches) == (BATCH, [b"x"])
        link.reply(reply, [b"small"])
        assert gateway.next() == Frame(reply, b"small")
        send_with_file(ours.fileno(), encode_frame(TakeFile()), file)
        for letters in (b"ab", b"cd"):
            bodies = [letters[:1] * sizes[0], letters[1:] * sizes[1]]
            assert file.write(bodies, 1)
            ours.sendall(encode_frame(large))
            assert next(batches) == (large, bodies)
            link.reply(reply, [letters * 90_000])
            assert gateway.next() == Frame(msgspec.structs.replace(reply, in_file=True), b"")
            assert file.read([180_000], 1) == [letters * 90_000]
            gateway.tell(BATCH)
            assert next(batches) == (BATCH, [b"x"])
            link.reply(reply, [b"small"])
            assert gateway.next() == Frame(reply, b"small")
    file.close()


def test_a_batch_in_a_file_that_has_not_come_is_an_error(ends: tuple[GatewayConnection, Gateway]) -> None:
    link, gateway = ends
    gateway.connection.sendall(
        encode_frame(Batch(batch=7, api="a", limit_rows=9, lengths=[1], rows=[1], in_file=True))
    )
    with pytest.raises(FrameError, match="batch 7 is in the shared file, but none has arrived"):
        next(link.batches())


def test_threads_share_a_connection(
    ends: tuple[GatewayConnection, Gateway], thread: ThreadPoolExecutor
) -> None:
    """One waits for batches, while others send, ask for cancellations, and leave."""
    link, gateway = ends
    link.share(in_order=True)
    batches = link.batches()

    reading: Future[tuple[Batch, list[bytes]]] = thread.submit(next, batches)
    link.send(Pong())
    assert gateway.messages(1) == [Pong()]
    gateway.tell(BATCH)
    assert reading.result(HANG_S) == (BATCH, [b"x"])

    reading = thread.submit(next, batches)
    link.leave()
    link.leave()
    assert not has_left(link, 1)
    behind = msgspec.structs.replace(BATCH, batch=2)
    gateway.tell(Cancel(1, (0,)), behind)
    assert reading.result(HANG_S) == (behind, [b"x"])
    assert has_left(link, 1)
    link.reply(Reply(1, True, 0.1, [200], [1], []), [b"y"])
    assert not has_left(link, 1)
    assert [type(message) for message in gateway.messages(2)] == [Leaving, Reply]

    ended = thread.submit(list, batches)
    link.stop_reading()
    assert ended.result(HANG_S) == []


def test_a_thread_that_sends_leaves_for_the_signal_that_found_it_sending() -> None:
    ours, theirs = socket.socketpair()
    with ours, contextlib.closing(GatewayConnection(theirs)) as link:
        link.share(in_order=True)
        assert link._sending is not None
        with link._sending:  # as a signal in the middle of a message
            link._is_receiving = True
            link.leave()
        link.send(Pong())

        assert Gateway(ours).messages(2) == [Pong(), Leaving()]


@pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")
def test_the_reply_to_a_batch_goes_to_its_half_though_another_batch_has_been_read() -> None:
    ours, theirs = socket.socketpair()
    file, size = SharedFile.create(), 180_000
    with ours, contextlib.closing(GatewayConnection(theirs)) as link:
        send_with_file(ours.fileno(), encode_frame(TakeFile()), file)
        Gateway(ours).tell(BATCH, BATCH)
        batches = link.batches()
        assert [next(batches), next(batches)] == [(BATCH, [b"x"])] * 2
        for letter in (b"a", b"b"):
            link.reply(Reply(1, True, 0.1, [200], [size], []), [letter * size])

        assert [message.in_file for message in Gateway(ours).messages(2)] == [True, True]  # type: ignore[union-attr]
        assert [file.read([size], half) for half in (0, 1)] == [[b"a" * size], [b"b" * size]]
    file.close()


def test_results_that_are_too_large_for_a_frame_fail_their_requests(
    ends: tuple[GatewayConnection, Gateway], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker continues. The limit, which is 2 GiB, is lower here."""
    link, gateway = ends
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1000)
    reply = Reply(1, True, 0.5, [200, 400], [600, 500], [(2.0, 0.1)], reasons={1: ["no"]}, limit=8.0)
    link.reply(reply, [bytes(600), bytes(500)])
    link.reply(Reply(2, True, 0.5, [200], [1], []), [b"y"])

    sent, after = gateway.next(), gateway.next()
    assert isinstance(sent.message, Reply)
    assert (sent.message.batch, sent.message.worked, sent.message.statuses) == (1, False, [500, 500])
    assert (
        split_payload(sent.payload, sent.message.lengths)
        == [b"the results of the batch are too large to send"] * 2
    )
    assert (sent.message.chunks, sent.message.reasons, sent.message.limit) == ([(2.0, 0.1)], {}, 8.0)
    assert after.payload == b"y"
    assert "the results of batch 1 are too large to send" in caplog.text


READING = Gpus({"0": Gpu(utilization=0.5)})


def test_a_reading_of_gpus_follows_what_is_sent_anyway(ends: tuple[GatewayConnection, Gateway]) -> None:
    """A reply, a piece or a pong; each reading once."""
    link, gateway = ends
    link.send_ready(Ready())
    link.gpus = lambda: READING
    link.reply(Reply(1, True, 0.5, [200], [1], []), [b"x"])
    link.reply(Reply(2, True, 0.5, [200], [1], []), [b"x"])
    other = Gpus(dict(READING.gpus))
    link.gpus = lambda: other
    link.send_piece(3, HEAD, b"x")
    link.send_piece(3, None, b"x")
    another = Gpus(dict(READING.gpus))
    link.gpus = lambda: another
    gateway.tell(Ping(), BATCH)
    next(link.batches())

    assert [type(one) for one in gateway.messages(9)] == [
        *(Ready, Reply, Gpus, Reply),
        *(Piece, Gpus, Piece),
        *(Pong, Gpus),
    ]


def test_a_reading_for_a_gateway_that_has_gone_is_no_error(
    ends: tuple[GatewayConnection, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next read finds out, and may find why."""
    link, gateway = ends
    link.gpus = lambda: READING
    send = link.send

    def closed_after_reply(message: Message, bodies: Sequence[bytes] = ()) -> None:
        if isinstance(message, Gpus):
            raise BrokenPipeError
        send(message, bodies)

    monkeypatch.setattr(link, "send", closed_after_reply)
    gateway.tell(BATCH, Goodbye("enough"))
    batches = link.batches()
    next(batches)
    link.reply(Reply(1, True, 0.5, [200], [1], []), [b"x"])
    gateway.connection.shutdown(socket.SHUT_WR)

    assert list(batches) == []
    assert link.goodbye == Goodbye("enough")
