"""Entrants of the comparison with peers. Nothing is measured or installed here."""

import json
import os
import signal
import sys

import pytest
import typer

from benchmarks.harness.cli import choose, parse_counts
from benchmarks.peers.bench import parse_points, parse_rates
from benchmarks.peers.catalogue import PEERS, ModelPoint, Peer
from benchmarks.peers.embeddings import Vectors
from benchmarks.peers.entrants import (
    SERVERS,
    Entrant,
    WrongAnswerError,
    encoder_work,
    ours,
    running,
    sleep_work,
)
from uncork_loadtests.traffic.payloads import same_answer

POINT = ModelPoint(intercept_ms=1, slope_ms=0.02)
# What each kind of peer was seen to answer to a row that adds up to 10.5.
REPLIES = {
    "mosec": b"10.5",
    "bentoml": b"[10.5]",
    "litserve": b'{"output":10.5}',
    "mlserver": b'{"model_name":"peer","outputs":[{"name":"answers","shape":[1,1],"data":[10.5]}]}',
}
SERVER = """\
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"ready")

    def do_POST(self):
        row = eval(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(b"%g" % (sum(row) + OFFSET))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *ignored):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


def entrant(offset: float) -> Entrant:
    command = [sys.executable, "-c", SERVER.replace("OFFSET", str(offset))]
    return Entrant(
        name="adder", command=command, peer=Peer(name="adder", requirements=(), ready_path="/", path="/")
    )


@pytest.mark.parametrize("name", REPLIES)
def test_the_answer_is_found_in_what_a_peer_replies(name: str) -> None:
    assert PEERS[name].read(REPLIES[name]) == 10.5


def test_vectors_are_equal_if_they_are_close() -> None:
    vectors, close, other, short = (
        Vectors(b'{"data":[{"embedding":[%s]}],"id":%d}' % (numbers, at))
        for at, numbers in enumerate((b"0.5,0.25", b"0.50005,0.25", b"0.5002,0.25", b"0.5"))
    )

    assert bytes(close) == vectors
    assert same_answer(bytes(close), vectors)
    for each in (other, short, b"[]", b"no JSON"):
        assert vectors != each
        assert not same_answer(bytes(each), vectors)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_is_sent_the_whole_row(name: str) -> None:
    body = PEERS[name].write([1.5, -2.0, 16.0])

    assert json.loads(body)
    assert b"1.5,-2.0,16.0" in body
    assert b"\n" not in body
    assert (SERVERS / PEERS[name].server_file).exists()


def test_uncork_serves_the_encoder_of_the_peers() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    work = encoder_work()

    # It checks the answer to each row.
    with running(ours(work), work=work):
        assert len(set(work.answers)) > 1


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"unknown peer 'moses'; known: mosec, .*"):
        choose("static,moses", list(PEERS), what="peer")
    for text in ("1", "1,2,3", "a,b", "0,0", "-1,1", "nan,1"):
        with pytest.raises(typer.BadParameter):
            parse_points(text)
    for text in ("", "0,1", "x"):
        with pytest.raises(typer.BadParameter):
            parse_counts(text)
    for text in ("", "0", "101", "nan", "x"):
        with pytest.raises(typer.BadParameter):
            parse_rates(text)
    assert parse_rates("90,10") == [10, 90]
    assert parse_points("1,0.02;") == [POINT]
    assert parse_counts("1,64") == [1, 64]
    assert choose("static, mosec", list(PEERS), what="peer") == ["mosec", "static"]


def test_a_server_that_answers_right_is_entered_and_ended() -> None:
    with running(entrant(0.0), work=sleep_work(POINT)) as found:
        assert found.server.last_words() == ""
        assert found.front.pid == found.server.pid
        assert found.plan.payload.expected is not None
        assert found.plan.payload.expected[1] == b"0.5"
        assert len(set(found.plan.payload.expected)) == len(found.plan.payload.expected)

    with pytest.raises(ProcessLookupError):
        os.kill(found.server.pid, signal.SIG_DFL)


def test_a_server_that_answers_wrong_is_not_entered() -> None:
    with (
        pytest.raises(WrongAnswerError, match=r"adder answers .*, right is -0\.75"),
        running(entrant(1.0), work=sleep_work(POINT)),
    ):
        pass
