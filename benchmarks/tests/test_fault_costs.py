"""The pure parts of scripts/bench faults, and its batches of requests against a scripted server."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from random import Random
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos.questions import Row, right_answer
from benchmarks.fault_costs.bench import text_of
from benchmarks.fault_costs.findings import Finding, faults_of, mark_line
from benchmarks.fault_costs.model import limit_per_s, payload
from benchmarks.fault_costs.overload import Step
from benchmarks.fault_costs.overload import finding as overload_finding
from benchmarks.fault_costs.poison import CLEAN, KINDS, Kind, Trial, try_batch
from benchmarks.fault_costs.poison import finding as poison_finding
from benchmarks.fault_costs.rolling import CASES, Turn, due_times_s
from benchmarks.fault_costs.rolling import finding as rolling_finding
from benchmarks.fault_costs.snapshots import Snapshot, at_times, growth, replaced
from benchmarks.harness.marks import at_least, at_most
from benchmarks.harness.metrics import sum_of
from tests.loadtests.fake_server import reply, serving
from tests.loops import HANG_S
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.loops import ClosedLoop
from uncork_loadtests.generator.samples import LOST, UNANSWERED, Recorder
from uncork_loadtests.servers import HOST, BenchError, Server
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(
    url="http://service/", payload=Payload(bodies=(b"1",)), rate=600.0, seconds=2.0, warmup_s=0.0, goal_s=1.0
)
RAISES = KINDS[1]


def outcome(*seen: tuple[int, float, int], wrong: bool = False, without_retry_after: int = 0) -> Outcome:
    """A run of two seconds with each (status, latency in seconds, count)."""
    recorder = Recorder()
    for status, latency_s, times in seen:
        for at in range(times):
            due_s = 2.0 * at / times
            done_s = due_s + latency_s
            recorder.add(due_s, due_s, due_s, done_s, status, 1, 0.0, 1.0, wrong, done_s, 0, 1)
    return Outcome(
        plan=PLAN,
        samples=recorder.samples(),
        measured_s=2.0,
        cpu_s=(0.1,),
        connections=1,
        first_wrong="sent 1, got 2" if wrong else "",
        interrupted=False,
        without_retry_after=without_retry_after,
    )


def seen_at(
    at_s: float, *, memory_bytes: int = 1, queue_rows: int = 0, workers: Sequence[int] = ()
) -> Snapshot:
    return Snapshot(
        at_s=at_s,
        memory_bytes=memory_bytes,
        queue_rows=queue_rows,
        queue_bytes=20 * queue_rows,
        workers=frozenset(workers),
    )


@pytest.mark.parametrize(
    ("value", "bound", "void", "ending"),
    [
        (0.87, at_least(0.87), "", "it: 0.87 ms; mark: at least 0.87, met"),
        (0.86, at_least(0.87), "", "mark: at least 0.87, missed"),
        (50.0, at_most(50), "", "mark: at most 50, met"),
        (50.1, at_most(50), "", "mark: at most 50, missed"),
        (None, at_most(50), "", "it: - ms; mark: at most 50, not measured"),
        (0.9, at_least(0.87), "it fell behind", "mark: at least 0.87, void: it fell behind"),
    ],
)
def test_a_figure_is_held_against_its_mark(
    value: float | None, bound: object, void: str, ending: str
) -> None:
    assert mark_line("it", value, bound=bound, unit="ms", void=void).endswith(ending)  # type: ignore[arg-type]


def test_what_is_lost_or_wrong_is_told() -> None:
    good = outcome((200, 0.1, 10), (503, 0.01, 10))

    assert faults_of("it", good, allowed=frozenset({200, 503})) == []
    assert faults_of("it", good, allowed=frozenset({200})) == ["it: answers with 503"]
    assert faults_of("it", outcome((LOST, 0.1, 2), (UNANSWERED, 0.1, 1)), allowed=frozenset()) == [
        "it: 3 requests without an answer"
    ]
    assert faults_of("it", outcome((200, 0.1, 2), wrong=True), allowed=frozenset({200})) == [
        "it: 2 wrong answers, the first: sent 1, got 2"
    ]
    assert faults_of("it", outcome((503, 0.1, 4), without_retry_after=3), allowed=frozenset({503})) == [
        "it: 3 answers with 503 without Retry-After"
    ]


async def test_refusals_that_do_not_say_when_to_come_back_are_counted() -> None:
    answers = deque(
        [reply(b"busy", status="503 Busy"), reply(b"busy", status="503 Busy", fields="Retry-After: 1\r\n")]
    )

    async def refuse(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.popleft())

    async with serving(refuse) as url, asyncio.timeout(HANG_S):
        traffic = ClosedLoop(replace(PLAN, url=url, rate=None, clients=1, limit=2))
        try:
            await traffic.reach()
            traffic.begin(asyncio.get_running_loop().time())
            await traffic.wait(5.0)
        finally:
            await traffic.close()
        assert len(traffic.answers.recorder) == 2
        result = traffic.answers.without_retry_after
    assert result == 1


def test_looks_tell_of_growth_and_replacement() -> None:
    looks = [
        seen_at(1, memory_bytes=10, workers=[1, 2]),
        seen_at(10, memory_bytes=100, workers=[2, 3]),
        seen_at(20, memory_bytes=120, workers=[2, 3]),
        seen_at(30, memory_bytes=90, workers=[3, 4]),
    ]

    assert growth(looks, since_s=10) == pytest.approx(1.2)
    assert growth(looks, since_s=31) is None
    assert replaced(looks, workers=2) == 2
    assert replaced([], workers=2) == 0
    assert at_times(looks, [9.0, 17.0, 99.0]) == looks[1:]


def test_metrics_are_summed_by_label() -> None:
    page = (
        "# TYPE uncork_releases counter\n"
        'uncork_releases_total{api="a",reason="full"} 2.0\n'
        'uncork_releases_total{api="b",reason="full"} 3.0\n'
        'uncork_releases_total{api="b",reason="idle"} 4.0\n'
    )

    assert sum_of(page, "uncork_releases_total") == 9
    assert sum_of(page, "uncork_releases_total", reason="full") == 5
    assert sum_of(page, "uncork_queue_rows") == 0


def test_the_model_has_a_limit_and_right_answers() -> None:
    found = payload()

    assert limit_per_s(20, workers=2) == pytest.approx(400.0)
    assert found.expected is not None
    assert len(set(found.bodies)) == len(set(found.expected)) == len(found.bodies)


def test_goodput_is_what_comes_within_the_goal() -> None:
    saturated = Step(name="saturated", outcome=outcome((200, 0.3, 1000)), snapshots=[])
    overload = Step(
        name="4 times",
        outcome=outcome((200, 0.9, 900), (200, 1.1, 100), (503, 0.06, 2250), (503, 0.01, 750)),
        snapshots=[seen_at(0.4, memory_bytes=50_000_000, queue_rows=70), seen_at(2, memory_bytes=60_000_000)],
    )

    found = overload_finding(saturated, [overload])

    assert overload.goodput_per_s == pytest.approx(450.0)
    answers, memory = found.sheets
    assert answers.rows[1][:8] == ["4 times", "2,000", "500", "450", "0.900", "1,100", "1,500", "60.0"]
    assert answers.rows[1][8] == "0.250"
    assert [note.rpartition(", ")[2] for note in answers.notes] == ["met", "missed"]
    assert memory.rows[0] == ["0 s", "50.0", "70", "1,400"]
    assert memory.notes[0].endswith("1.200; mark: at most 1.1, missed")
    assert found.faults == []


@given(count=st.integers(0, 20), seconds=st.floats(1.0, 100.0))
def test_strikes_are_even_and_leave_time_at_the_end(count: int, seconds: float) -> None:
    times = due_times_s(count, seconds=seconds)

    assert len(times) == count
    assert all(0 < time_s < seconds * (1 - 1 / (count + 1)) for time_s in times)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([seconds / (count + 1)] * len(gaps))


def test_replacement_is_held_against_the_same_load_left_alone() -> None:
    alone, reloaded, recycled = CASES
    turns = [
        Turn(case=alone, outcome=outcome((200, 0.1, 1000)), replaced=0),
        Turn(case=reloaded, outcome=outcome((200, 0.15, 999), (503, 0.01, 1)), replaced=10),
        Turn(case=recycled, outcome=outcome((200, 0.1, 1000)), replaced=1),
    ]

    found = rolling_finding(turns)

    (table,) = found.sheets
    assert table.rows[1][1:] == ["10", "1,000", "1", "150", "150", "1.50"]
    assert [note.rpartition(", ")[2] for note in table.notes] == ["missed", "met", "met", "missed"]
    assert found.faults == []


def trial(kind: Kind, *, last_s: float, round_: int = 0, right: int = 63, status: int | None = 500) -> Trial:
    return Trial(kind=kind, round=round_, right=right, status=status, last_s=last_s)


def test_poison_is_held_against_the_clean_batch_of_its_round() -> None:
    trials = [
        *(trial(CLEAN, round_=at, last_s=0.2 * (at + 1), right=64, status=None) for at in range(2)),
        *(
            trial(kind, round_=at, last_s=0.4 * (at + 1), status=kind.status)
            for kind in KINDS[1:]
            for at in (0, 1)
        ),
    ]

    found = poison_finding(trials)

    (table,) = found.sheets
    assert table.rows[0] == ["none", "2", "64 of 64", "-", "300", "400", "-"]
    assert table.rows[1] == [RAISES.name, "2", "63 of 63", "500", "600", "800", "2.000 (2.000 .. 2.000)"]
    assert found.faults == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"right": 62}, "poison: raises at once: 62 of 63 others got the right answer"),
        ({"status": 200}, "poison: raises at once: the poisoned request got 200"),
        ({"status": None}, "poison: raises at once: the poisoned request got no answer"),
    ],
)
def test_a_neighbour_that_pays_is_a_fault(changed: dict[str, int | None], fault: str) -> None:
    whole = trial(RAISES, last_s=1.0)

    assert whole.fault == ""
    assert replace(whole, **changed).fault == fault  # type: ignore[arg-type]


def tried(kind: Kind, *, spoilt: int = 0, batches: int = 1) -> Trial:
    """Try one batch against a server with this many spoilt answers, which reports this many full batches."""
    served, looked = count(), count()

    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        if not body:
            total = batches * next(looked)
            page = f'# TYPE uncork_releases counter\nuncork_releases_total{{reason="full"}} {total}\n'
            writer.write(reply(page.encode(), fields="Connection: close\r\n"))
            writer.close()
            return
        row = msgspec.json.decode(body, type=Row)
        if row.act:
            writer.write(reply(b"{}", status="500 Failed"))
        elif next(served) < spoilt:
            writer.write(b"no answer at all\r\n\r\n" if spoilt > 1 else reply(b'"another"'))
        else:
            writer.write(reply(msgspec.json.encode(right_answer(row))))

    async def run() -> Trial:
        async with serving(handle) as url, asyncio.timeout(HANG_S):
            port = urlsplit(url).port
            assert port is not None
            server = Server(name="fake", command=(), port=port, pid=0)
            assert server.url("/").startswith(f"http://{HOST}")
            return await try_batch(server, kind, round_=3, numbers=count(1), random=Random(1))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "spoilt", "right", "status"),
    [(CLEAN, 0, 64, None), (RAISES, 0, 63, 500), (RAISES, 1, 62, 500), (RAISES, 2, 61, 500)],
)
def test_a_batch_is_asked_for_at_once(kind: Kind, spoilt: int, right: int, status: int | None) -> None:
    found = tried(kind, spoilt=spoilt)

    assert (found.right, found.status, found.round) == (right, status, 3)
    assert found.last_s > 0


@pytest.mark.parametrize("batches", [0, 2])
def test_requests_that_do_not_share_a_batch_show_nothing(batches: int) -> None:
    with pytest.raises(BenchError, match="64 requests did not share one batch"):
        tried(RAISES, batches=batches)


def test_the_page_has_what_all_parts_found() -> None:
    saturated = Step(name="saturated", outcome=outcome((200, 0.3, 1000)), snapshots=[])
    found = text_of(
        [
            overload_finding(saturated, [saturated]),
            Finding(paragraph="Another part.", sheets=[], faults=[]),
        ]
    )

    assert found.startswith("# Overload, poisoned rows, replaced workers: raw tables\n")
    assert found.index("Another part.") < found.index("## Overload") < found.index("## Memory at saturated")
