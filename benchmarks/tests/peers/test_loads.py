"""Loads of the comparison with peers, and their rounds. Nothing is measured here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from benchmarks.harness.rounds import Round, Target, round_of, target
from benchmarks.peers.catalogue import ModelPoint
from benchmarks.peers.contest import Contest, Settings, events
from benchmarks.peers.entrants import sleep_work
from benchmarks.peers.loads import OpenLoop, OverloadError, check_keeps_up
from benchmarks.tests.peers.made_up_rounds import rounds
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SAMPLE, SHED, UNANSWERED
from uncork_loadtests.servers import BenchError, Server
from uncork_loadtests.traffic.plan import Payload, Plan

LIGHT, HEAVY = ModelPoint(intercept_ms=1, slope_ms=0.02), ModelPoint(intercept_ms=40, slope_ms=1)
SETTINGS = Settings(connections=[1, 64], rates=[10, 90], rounds=3, seconds=4, generator="wrk")


def outcome(latency_s: float = 0.01, *, lag_s: float = 0.0) -> Outcome:
    """An open loop of 4 s in which every request took as long, and one more in the warm-up."""
    samples = np.zeros(1001, dtype=SAMPLE)
    samples["scheduled_s"] = [-0.5, *np.linspace(0, 3.9, 1000)]
    samples["fired_s"] = samples["sent_s"] = samples["scheduled_s"] + lag_s
    samples["done_s"] = samples["scheduled_s"] + latency_s
    samples["status"] = 200
    return Outcome(
        plan=Plan(url="http://h/", payload=Payload(bodies=(b"1",)), rate=250.0, seconds=4.0, goal_s=0.05),
        samples=samples,
        measured_s=4.0,
        cpu_s=(0.1,),
        connections=1,
        first_wrong="sent 1, got 2",
        interrupted=False,
    )


def test_an_open_loop_is_summed_up() -> None:
    seen = outcome()
    seen.samples["done_s"][1:101] += 0.1  # late for the goal
    seen.samples["done_s"][101:106] += 1.0  # late for anything
    seen.samples["status"][111:116] = SHED

    found = round_of(seen)

    assert [found.p50, found.p99] == pytest.approx([0.01, 0.11])
    assert [found.in_goal, found.soon] == pytest.approx([0.89, 0.99])
    assert (found.refused, found.wrong, found.fault) == (5, 0, "")


def test_an_open_loop_that_says_nothing_is_noticed() -> None:
    behind = round_of(outcome(1.5, lag_s=0.5))
    assert "fell behind" in behind.void
    check_keeps_up(behind)
    check_keeps_up(round_of(outcome()))
    with pytest.raises(OverloadError, match=r"median latency is 1\.5 s, 0 never answered"):
        check_keeps_up(round_of(outcome(1.5)))
    unanswered = outcome()
    unanswered.samples["status"][9] = UNANSWERED
    with pytest.raises(OverloadError, match="1 never answered"):
        check_keeps_up(round_of(unanswered))


def test_the_loads_follow_from_the_model() -> None:
    light, heavy = (
        [load for load, _, _ in events(sleep_work(model), settings=SETTINGS)] for model in (LIGHT, HEAVY)
    )

    assert [load.title for load in light] == [
        "closed loop, 1 client",
        "closed loop, 64 clients",
        "open loop, 400/s",
        "open loop, 3,600/s",
    ]
    slow, last = heavy[2], heavy[3]
    assert isinstance(slow, OpenLoop)
    assert isinstance(last, OpenLoop)
    assert last.rate == pytest.approx(0.9 * 64 / 0.104)
    assert last.goal_s == pytest.approx(0.41)
    assert slow.seconds == pytest.approx(600 / slow.rate)


@dataclass(frozen=True, kw_only=True)
class Scripted(OpenLoop):
    """A load with scripted rounds."""

    script: dict[str, Iterator[Round | BenchError]]
    asked: list[tuple[str, int]] = field(default_factory=list)

    def measure(self, each: Target, *, turn: int) -> Round:
        self.asked.append((each.server.name, turn))
        found = next(self.script[each.server.name])
        if isinstance(found, BenchError):
            raise found
        return found


def contest(*names: str) -> Contest:
    found = Contest(work=sleep_work(LIGHT), settings=SETTINGS, tell=lambda what: None)
    for name in names:
        server = Server(name=name, command=(), port=1, pid=1, last_words=partial(str, f"{name}: good-bye"))
        found.present[name] = target(server, path="/", bodies=[b""], expected=[b""])
    return found


def scripted(**script: Sequence[Round | BenchError]) -> Scripted:
    rounds_of: dict[str, Iterator[Round | BenchError]] = {name: iter(each) for name, each in script.items()}
    return Scripted(rate=400, goal_s=0.01, seconds=4, script=rounds_of)


def test_rounds_alternate_and_a_void_one_is_repeated() -> None:
    ours, theirs, void = rounds(p99=[1, 2, 3]), rounds(p99=[4, 5]), replace(rounds(p99=[0])[0], void="behind")
    load = scripted(uncork=[ours[0], void, ours[1], ours[2]], a=[theirs[0], void, void, void, theirs[1]])
    here = contest("uncork", "a")

    found = here.run(load)

    assert found.rounds == {"uncork": ours, "a": [theirs[0], None, theirs[1]]}
    assert load.asked[:7] == [("uncork", 1), ("a", 1), *[("a", 2)] * 3, *[("uncork", 2)] * 2]
    assert here.left_out == ["sleep 1 + 0.02n ms, open loop, 400/s: round 2 of a: void 3 times: behind"]


def test_who_breaks_or_cannot_keep_up_is_left_out_with_its_last_words() -> None:
    late = OverloadError("does not keep up")
    here = contest("uncork", "a", "b")

    found = here.run(
        scripted(uncork=[late, *rounds(p99=[1, 2])], a=[*rounds(p99=[3]), late], b=[BenchError("is gone")])
    )

    assert found.rounds == {"uncork": [None, *rounds(p99=[1, 2])]}
    assert [*here.present] == ["uncork"]
    assert here.last_words == {"a": "a: good-bye", "b": "b: good-bye"}
    assert [line.rpartition("/s: ")[2] for line in here.left_out] == [
        "round 1 of uncork: does not keep up",
        "b is gone",
        "a does not keep up",
    ]
    with pytest.raises(BenchError, match="uncork is gone"):
        here.run(scripted(uncork=[BenchError("is gone")]))


def test_wrong_answers_and_faults_are_kept() -> None:
    here = contest("uncork", "a")
    wrong = replace(rounds(p99=[1])[0], wrong=1, fault="1 wrong answer")
    lost = replace(rounds(p99=[1])[0], fault="1 connections lost")

    here.run(scripted(uncork=rounds(p99=[1, 1, 1]), a=[wrong, lost, lost]))

    assert here.wrong == ["sleep 1 + 0.02n ms, open loop, 400/s: a: 1 wrong answer"]
    assert [*here.last_words] == ["a"]
