"""The pages of docs/results, and the pure parts of the benchmarks that print them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.chaos import report as chaos
from benchmarks.costs import parse_cost
from benchmarks.dashboard import bench as dashboard
from benchmarks.fault_costs import bench as fault_costs
from benchmarks.harness.paths import ROOT
from benchmarks.harness.report import ResultPage, policies_sheet
from benchmarks.harness.sheets import Sheet
from benchmarks.models import encoder, sentences
from benchmarks.models.agreement import TOLERANCE, Agreement, largest_difference
from benchmarks.models.encoder import ON_CPU, Times, times_sheet
from benchmarks.models.sentences import texts
from benchmarks.padding import bench as padding
from benchmarks.scale import bench_autoscaling, bench_grpc, bench_scaling, bench_transport
from uncork_loadtests.compare import Comparison, LeftOut, Rounds, Turn, relate
from uncork_loadtests.servers import BenchError
from uncork_loadtests.targets import Estimate
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.tuning.batch_times import BatchTimes, SizeTime, fit

PLAN = Plan(url="http://service/", payload=Payload(bodies=(b"[1]",)), clients=4)


def turn(rate: float, p99_ms: float | None) -> Turn:
    """A valid measurement."""
    return Turn(
        mean_ms=10.0,
        p50_ms=8.25,
        p99_ms=p99_ms,
        answered_per_s=rate,
        in_goal=None,
        batch_rows=4.0,
        gateway_cpu_us=150.0,
        workers_cpu_us=None,
        failure="",
        wrong=0,
        first_wrong="",
        void="",
    )


PAGES = {
    "autoscaling": bench_autoscaling.PAGE,
    "chaos": chaos.PAGE,
    "chaos-hosts": chaos.HOSTS_PAGE,
    "dashboard": dashboard.PAGE,
    "encoder": encoder.PAGE,
    "faults": fault_costs.PAGE,
    "grpc": bench_grpc.PAGE,
    "padding": padding.PAGE,
    "parse": parse_cost.PAGE,
    "scaling": bench_scaling.PAGE,
    "sentences": sentences.PAGE,
    "transport": bench_transport.PAGE,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_begins_as_its_script_prints_it(name: str) -> None:
    committed = (ROOT / "docs" / "results" / f"{name}.md").read_text()
    printed = f"{PAGES[name].beginning()}```sh\n{PAGES[name].script}"

    assert committed[: len(printed)] == printed
    script, _, benchmark = PAGES[name].script.partition(" ")
    assert (ROOT / script).exists()
    assert script != "scripts/bench" or benchmark in BENCHMARKS


def test_a_page_has_introduction_command_paragraphs_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench.py", "--rounds", "3"])
    table = Sheet(title="Times", columns=["rows", "ms"], rows=[["1", "2"]], notes=["a note"])
    long = "\n    words ".join("many" for _ in range(30))
    page = ResultPage(
        title="A bench", introduction="  What it\n measures.", script="scripts/bench-it", packages=["numpy"]
    )

    found = page.text(paragraphs=[long, f"* One.\n * Two: {long}"], sheets=[table])

    heading, introduction, command, paragraph, items, versions, *rest = found.split("\n\n")
    assert heading == "# A bench: raw tables"
    assert introduction == "What it measures."
    assert command == "```sh\nscripts/bench-it --rounds 3\n```"
    assert paragraph.split() == long.split()
    assert items.startswith("* One.\n* Two: many words")
    assert all(line.startswith("  ") for line in items.splitlines()[2:])
    assert max(map(len, found.splitlines())) <= 120
    assert "  " not in paragraph
    assert f", numpy {np.__version__}; " in versions
    assert rest == ["## Times", "| rows | ms |\n| --- | ---: |\n| 1 | 2 |", "* a note\n"]


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.0, "are equal to"), (1.23e-7, "differ by at most 1e-07 from")]
)
def test_an_agreement_is_a_sentence(difference: float, verdict: str) -> None:
    found = Agreement(requests=9, largest_batch=4, largest_difference=difference)

    assert str(found) == (
        "The answers to 9 different requests, sent at once and run in batches of up to 4, "
        f"{verdict} the answers that each gets alone."
    )


def test_policies_are_related_to_the_first() -> None:
    whole = [
        {"none": turn(10.0, 90.0), "cork": turn(30.0, 45.0)},
        {"none": turn(10.0, 90.0), "cork": turn(30.0, None)},
    ]
    rounds = Rounds(whole=whole, left_out=[LeftOut(number=2, policy="none", reason="it fell behind")])
    comparison = Comparison(
        target="service.py:Service", plan=PLAN, rounds=rounds, results=relate(["none", "cork"], whole)
    )

    found = policies_sheet(comparison, title="4 clients")

    assert found.rows == [
        ["none", "10", "8.2", "90.0", "4.0", "0.150", "-", "2"],
        ["cork", "30", "8.2", "-", "4.0", "0.150", "-", "2"],
    ]
    assert found.notes == [
        "requests/s, cork / none: 3.000 (3.000 .. 3.000)",
        "p99, cork / none: -",
        "round 3 left out: none: it fell behind",
    ]


def test_no_rounds_are_an_empty_table() -> None:
    rounds = Rounds(whole=[], left_out=[LeftOut(number=0, policy="cork", reason="it fell behind")])
    comparison = Comparison(target="service.py:Service", plan=PLAN, rounds=rounds, results=[])

    found = policies_sheet(comparison, title="4 clients")

    assert (found.rows, found.notes) == ([], ["round 1 left out: cork: it fell behind"])


def test_numbers_that_are_close_agree() -> None:
    alone = [np.array([1.0, 2.0]), np.array([[3.0]]), np.array([])]
    together = [np.array([1.0, 2.0 - TOLERANCE / 2]), np.array([[3.0 + TOLERANCE / 4]]), np.array([])]

    assert largest_difference(alone, together) == pytest.approx(TOLERANCE / 2)
    assert largest_difference([], []) == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.array([1.0, 2.0 + 4 * TOLERANCE]), r"request 1 .* differs from that alone by 0\.0004"),
        (np.array([1.0]), r"request 1 is answered with shape \(2,\) alone, \(1,\) in a batch"),
        (np.array([1.0, np.nan]), "request 1 .* differs"),
    ],
)
def test_other_numbers_are_told(
    other: np.ndarray[tuple[int, ...], np.dtype[np.float64]], message: str
) -> None:
    same = np.array([1.0, 2.0])

    with pytest.raises(BenchError, match=message):
        largest_difference([same, same], [same, other])


def test_texts_are_short_and_long_and_always_the_same() -> None:
    found = texts(200)
    words = [len(text.split()) for text in found]

    assert found == texts(200)
    assert len(set(found)) == 200
    assert (min(words), max(words) > 90, max(words) <= 100) == (3, True, True)
    assert 80 < sum(count <= 17 for count in words) < 120


def test_bodies_of_the_encoder_differ() -> None:
    assert len(set(ON_CPU.bodies())) == len(ON_CPU.bodies()) > 1


@pytest.mark.parametrize(
    ("learned", "stopped", "more"),
    [
        (None, "", []),
        (
            Estimate(intercept_ms=2.1, slope_ms=0.98),
            "64 requests at once took longer than the goal",
            [
                "the gateway's estimate from the same batches, by its `/metrics`: 2.1 + 0.98 n ms",
                "64 requests at once took longer than the goal",
            ],
        ),
    ],
)
def test_batch_times_come_with_their_lines(learned: Estimate | None, stopped: str, more: list[str]) -> None:
    sizes = tuple(SizeTime(rows=n, median_ms=2.0 + n, times_ms=(2.0 + n,)) for n in (1, 2, 4))
    measured = BatchTimes(
        sizes=sizes, rows_per_request=1, overhead_ms=0.5, gateway_cpu_us=None, stopped=stopped
    )

    found = times_sheet(Times(measured=measured, line=fit(sizes), learned=learned))

    assert found.rows[-1] == ["4", "6.00", "1.500", "6.00"]
    assert found.notes[0].startswith("least squares through the medians: 2 + 1 n ms, furthest off at ")
    assert found.notes[1:] == more
