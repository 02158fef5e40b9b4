"""The open loop against a scripted server on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.loadtests.fake_server import Handler, chunk, chunked, reply, serving
from uncork_loadtests.generator.answers import Asked
from uncork_loadtests.generator.connections import Connection
from uncork_loadtests.generator.loops import OpenLoop
from uncork_loadtests.generator.samples import LOST, PENDING, UNANSWERED, Samples
from uncork_loadtests.traffic.plan import Payload, Plan

BODIES = tuple(b"%d" % number for number in range(100))
PLAN = Plan(
    url="http://replaced/",
    payload=Payload(bodies=BODIES, expected=BODIES),
    arrivals="constant",
    rate=1000.0,
    seconds=0.02,
    warmup_s=0.0,
)
DRAIN_S = 5.0


def outcome(
    handler: Handler,
    *,
    plan: Plan = PLAN,
    shares: int = 1,
    drain_s: float = DRAIN_S,
    meanwhile: Callable[[list[OpenLoop]], Awaitable[None]] | None = None,
) -> tuple[Samples, list[OpenLoop]]:
    async def run() -> tuple[Samples, list[OpenLoop]]:
        async with serving(handler) as url:
            here = replace(plan, url=url, processes=shares)
            traffics = [OpenLoop(here, share=share) for share in range(shares)]
            try:
                return await play(traffics), traffics
            finally:
                for traffic in traffics:
                    await traffic.close()

    async def play(traffics: list[OpenLoop]) -> Samples:
        start_s = asyncio.get_running_loop().time()
        for traffic in traffics:
            await traffic.reach()
            traffic.begin(start_s)
        if meanwhile is not None:
            await meanwhile(traffics)
        for traffic in traffics:
            await traffic.drain(drain_s)
        return np.concatenate([traffic.answers.samples() for traffic in traffics])

    return asyncio.run(run())


async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
    fields = "X-Batch-Size: 4\r\nServer-Timing: queue;dur=1.50, batch;dur=12.25\r\n"
    writer.write(reply(body, fields=fields))


def test_every_request_on_the_schedule_is_sent_and_answered() -> None:
    found, _ = outcome(echo)

    assert sorted(found["scheduled_s"]) == pytest.approx([number / 1000 for number in range(20)])
    assert set(found["status"]) == {200}
    assert (found["scheduled_s"] <= found["fired_s"]).all()
    assert (found["fired_s"] <= found["sent_s"]).all()
    assert (found["sent_s"] < found["done_s"]).all()
    assert not found["wrong"].any()
    assert set(found["batch_rows"]) == {4}
    assert (set(found["queued_ms"]), set(found["batch_ms"])) == ({1.5}, {12.25})


def test_a_function_that_fails_ends_the_run(tmp_path: Path) -> None:
    """Not only its own request, of which nobody would hear."""
    (tmp_path / "bodies.py").write_text("def body(number):\n    return [b'0'][number]\n")
    plan = replace(PLAN, payload=Payload(function=f"{tmp_path / 'bodies.py'}:body"))

    with pytest.raises(ValueError, match="failed for request 1: IndexError: list index out of range"):
        outcome(echo, plan=plan)


def test_shares_make_up_the_schedule() -> None:
    bodies: list[bytes] = []

    async def note(body: bytes, writer: asyncio.StreamWriter) -> None:
        bodies.append(body)
        await echo(body, writer)

    found, traffics = outcome(note, shares=3)

    assert sorted(found["scheduled_s"]) == pytest.approx([number / 1000 for number in range(20)])
    assert sorted(map(int, bodies)) == list(range(20))
    assert [len(traffic.answers.samples()) for traffic in traffics] == [7, 7, 6]


def test_a_request_takes_the_connection_that_was_freed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "times").write_text("0\n0\n0\n0.5\n")
    events: list[tuple[str, Connection]] = []
    all_asked = asyncio.Barrier(3)

    class Watched(Connection):
        def send(self, asked: Asked) -> None:
            events.append(("used", self))
            super().send(asked)

    def on_idle(self: OpenLoop, connection: Connection) -> None:
        events.append(("freed", connection))
        free(self, connection)

    async def together(body: bytes, writer: asyncio.StreamWriter) -> None:
        if int(body) < 3:
            await all_asked.wait()
        writer.write(reply(body))

    free = OpenLoop.on_idle
    monkeypatch.setattr(OpenLoop, "on_idle", on_idle)
    monkeypatch.setattr("uncork_loadtests.generator.connections.Connection", Watched)
    monkeypatch.setattr("uncork_loadtests.generator.loops.Connection", Watched)
    plan = replace(PLAN, arrivals=f"replay:{tmp_path / 'times'}", rate=None, seconds=1.0)
    outcome(together, plan=plan)

    used = [number for number, (what, _) in enumerate(events) if what == "used"]
    assert len({connection for _, connection in events}) == 3
    assert events[used[3] - 1] == ("freed", events[used[3]][1])


def test_a_streamed_answer_is_timed_to_its_first_chunk_and_to_its_end() -> None:
    begun: list[bytes] = []
    all_begun = asyncio.Event()

    async def stream(body: bytes, writer: asyncio.StreamWriter) -> None:
        whole = chunked(body, b" ", body)
        cut = whole.index(b"\r\n\r\n") + 4 + len(chunk(body))
        writer.write(whole[:cut])
        await writer.drain()
        begun.append(body)
        if len(begun) == 20:
            all_begun.set()
        await all_begun.wait()
        writer.write(whole[cut:])

    expected = tuple(b"%b %b" % (body, body) for body in BODIES)
    found, _ = outcome(stream, plan=replace(PLAN, payload=Payload(bodies=BODIES, expected=expected)))

    assert set(found["status"]) == {200}
    assert (found["sent_s"] < found["first_s"]).all()
    # The end of the last ones may be read together with their first chunk.
    assert sorted(found["first_s"])[9] < found["done_s"].min()
    assert set(found["chunks"]) == {3}
    assert not found["wrong"].any()


def test_a_stream_that_breaks_off_is_lost() -> None:
    async def break_off(body: bytes, writer: asyncio.StreamWriter) -> None:
        whole = chunked(body, body)
        writer.write(whole if body == b"3" else whole[:-6])
        if body != b"3":
            writer.close()

    found, _ = outcome(break_off, plan=replace(PLAN, payload=Payload(bodies=BODIES)))

    assert sorted(found["status"]) == [LOST] * 19 + [200]
    assert sorted(found["chunks"]) == [0] * 19 + [2]


def test_requests_do_not_wait_for_answers() -> None:
    asked: list[bytes] = []
    all_asked = asyncio.Event()

    async def wait_for_all(body: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(body)
        if len(asked) == 20:
            all_asked.set()
        await all_asked.wait()
        writer.write(reply(body))

    found, traffics = outcome(wait_for_all)

    assert set(found["status"]) == {200}
    assert traffics[0].most_connections == 20


def test_at_the_limit_requests_wait_for_a_connection() -> None:
    bodies: list[bytes] = []

    async def note(body: bytes, writer: asyncio.StreamWriter) -> None:
        bodies.append(body)
        # One answer in the time of several requests.
        for _ in range(50):
            await asyncio.sleep(0)
        writer.write(reply(body))

    found, traffics = outcome(note, plan=replace(PLAN, max_connections=1, rate=100_000.0, seconds=0.0002))

    assert bodies == list(BODIES[:20])
    assert traffics[0].most_connections == 1
    assert found["sent_s"].tolist() == sorted(found["sent_s"])
    assert (found["sent_s"][1:] > found["done_s"][:-1]).all()
    assert (found["sent_s"][-1] > found["fired_s"][-1]).all()


def test_a_lost_connection_is_an_error_and_the_rest_goes_on() -> None:
    async def drop_odd(body: bytes, writer: asyncio.StreamWriter) -> None:
        if int(body) % 2:
            writer.close()
        else:
            writer.write(reply(body))

    found, _ = outcome(drop_odd)

    assert sorted(found["status"]) == [LOST] * 10 + [200] * 10


def test_what_is_never_answered_is_told() -> None:
    async def silent(body: bytes, writer: asyncio.StreamWriter) -> None:
        return None

    async def until_all_are_due(traffics: list[OpenLoop]) -> None:
        await traffics[0].wait(0.05)

    plan = replace(PLAN, max_connections=2)
    found, _ = outcome(silent, plan=plan, drain_s=0.0, meanwhile=until_all_are_due)

    assert found["status"].tolist() == [UNANSWERED] * 20
    assert (found["sent_s"] >= 0).sum() == 2
    assert ((found["body_bytes"] > 0) == (found["sent_s"] >= 0)).all()


async def test_a_server_that_goes_away_costs_errors_not_the_run() -> None:
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    traffic = OpenLoop(replace(PLAN, url=f"http://127.0.0.1:{port}/"))
    await traffic.reach()
    listening.close()
    await listening.wait_closed()
    traffic.begin(asyncio.get_running_loop().time())
    await traffic.drain(DRAIN_S)
    await traffic.close()
    assert traffic.answers.samples()["status"].tolist() == [LOST] * 20


def test_the_first_of_each_error_is_kept() -> None:
    async def refuse(body: bytes, writer: asyncio.StreamWriter) -> None:
        texts = {
            b"0": ("400 Bad", b'{"title": "Bad", "status": 400, "detail": "expected a row,\\n  got 0"}'),
            b"1": ("400 Bad", b"another"),
            b"2": ("503 Busy", b'{"error": "busy"}'),
            b"3": ("500 Oh", b"\xff" * 1000),
            b"4": ("404 No", b""),
            b"5": ("418 Tea", b'{"detail": "\xff"}'),
            b"6": ("422 Deep", b'{"a":' + b"[" * 9999),
        }
        status, text = texts.get(body, ("200 OK", body))
        writer.write(reply(text, status=status))

    _, traffics = outcome(refuse, plan=replace(PLAN, max_connections=1))

    assert traffics[0].answers.first_errors == {
        400: "expected a row, got 0",
        503: '{"error": "busy"}',
        500: "\N{REPLACEMENT CHARACTER}" * 300 + " ...",
        404: "",
        418: '{"detail": "\N{REPLACEMENT CHARACTER}"}',
        422: '{"a":' + "[" * 295 + " ...",
    }


def test_a_halt_records_what_is_pending() -> None:
    """Also what waits for a connection, but nothing that is not due yet."""
    seen: list[bytes] = []
    half = asyncio.Event()

    async def half_of_them(body: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(body)
        if len(seen) <= 10:
            writer.write(reply(body))
        else:
            half.set()

    async def halt(traffics: list[OpenLoop]) -> None:
        await half.wait()
        traffics[0].halt()

    plan = replace(PLAN, seconds=60.0, max_connections=2)
    found, _ = outcome(half_of_them, plan=plan, drain_s=0.0, meanwhile=halt)

    answered, pending = found[found["status"] == 200], found[found["status"] == PENDING]
    assert 0 < len(answered) <= 10
    assert len(pending) > 0
    assert len(answered) + len(pending) == len(found) < 60_000
    assert sorted(found["scheduled_s"]) == pytest.approx([number / 1000 for number in range(len(found))])
