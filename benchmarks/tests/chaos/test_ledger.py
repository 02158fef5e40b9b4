"""The ledger notices what is lost, doubled, swapped or wrongly refused, and nothing else."""

from collections.abc import Callable

import msgspec
import pytest

from benchmarks.chaos.faults import DRAIN, KILL, MALFORMED, OVERLOAD, OVERSIZED, POISON, STOP, Fault
from benchmarks.chaos.ledger import NO_FAULT, Ledger, Window
from benchmarks.chaos.questions import Question, Row, ask, ask_rows, right_answer
from uncork_loadtests.generator.http_reply import Reply

TIMEOUT_S = 2.0


def ledger() -> Ledger:
    return Ledger(timeout_s=TIMEOUT_S)


def good(question: Question) -> Reply:
    return reply(200, msgspec.json.encode(question.expected[0]))


def reply(status: int, body: bytes = b"{}", *, retry_after_s: int | None = None) -> Reply:
    return Reply(status, body, retry_after_s=retry_after_s)


def whats(book: Ledger) -> list[str]:
    return [finding.what for finding in book.findings]


def test_right_answers_leave_nothing() -> None:
    book, one, many = ledger(), ask(1, pad="x"), ask_rows(2, rows=3)
    book.send(one, 0.0)
    book.send(many, 0.0)
    book.answer(1, good(one), 0.1)
    book.answer(2, reply(200, msgspec.json.encode({"predictions": many.expected, "batchId": "b"})), 0.1)

    assert (book.findings, book.outstanding, book.sent, book.statuses) == ([], 0, 2, {200: 2})
    assert book.tallies[NO_FAULT].touched == 2


def test_a_lost_answer_is_noticed() -> None:
    book = ledger()
    for number in (1, 2, 3):
        book.send(ask(number), 0.0)
    book.close(1, 0.5)
    book.close(1, 0.6)
    book.answer(3, good(ask(3)), 0.7)
    book.sweep(29.9)
    assert book.outstanding == 1
    book.sweep(30.1)
    book.sweep(30.2)

    assert whats(book) == ["closed without an answer (after 0.50 s)", "no answer within 30.1 s"]
    assert [finding.number for finding in book.findings] == [1, 2]
    assert (book.lost, book.wrong, book.outstanding) == (2, 0, 0)


def test_a_pipelined_request_waits_for_those_before_it() -> None:
    book, pipelined = ledger(), [ask(number) for number in (1, 2, 3)]
    for question in pipelined:
        book.send(question, 0.0)
    book.strike(OVERLOAD, 1.0).close(2.0)
    book.answer(1, good(pipelined[0]), 29.0)
    book.restart(pipelined, 29.0)
    book.sweep(58.9)
    book.strike(KILL, 58.9)
    book.answer(2, reply(503, retry_after_s=1), 58.9)
    assert (book.findings, book.tallies[OVERLOAD.name].touched) == ([], 2)
    book.sweep(59.1)

    assert whats(book) == ["no answer within 59.1 s"]


def test_a_doubled_answer_is_noticed() -> None:
    book, question = ledger(), ask(1)
    book.send(question, 0.0)
    book.answer(1, good(question), 0.1)
    book.answer(1, good(question), 0.2)
    book.garble(1, "bytes came after the end")

    assert whats(book) == ["answered twice, the second time with 200", "bytes came after the end"]
    assert (book.lost, book.wrong) == (0, 2)


@pytest.mark.parametrize(
    "body",
    [
        msgspec.json.encode(right_answer(Row(number=2))),
        msgspec.json.encode(right_answer(Row(number=1, pad="other"))),
        msgspec.json.encode([right_answer(Row(number=1))]),
        b'"1',
        b"",
    ],
)
def test_a_swapped_answer_is_noticed(body: bytes) -> None:
    book = ledger()
    book.send(ask(1), 0.0)
    book.answer(1, reply(200, body), 0.1)

    assert [what.partition(" (")[0] for what in whats(book)] == ["the body is not the expected answer"]


@pytest.mark.parametrize(
    ("fault", "status", "is_allowed"),
    [
        (None, 500, False),
        (None, 503, False),
        (POISON, 500, True),
        (POISON, 200, False),
        (POISON, 502, False),
        (MALFORMED, 400, True),
        (MALFORMED, 500, False),
        (OVERSIZED, 413, True),
        (OVERSIZED, 400, False),
    ],
)
def test_a_request_may_only_get_what_its_own_fault_allows(
    fault: Fault | None, status: int, is_allowed: bool
) -> None:
    book, question = ledger(), ask(1)
    book.send(question, 0.0, own=fault)
    book.answer(1, reply(status, good(question).body, retry_after_s=1), 0.1)

    assert (book.findings == []) == is_allowed
    assert book.tallies[fault.name if fault else NO_FAULT].wrong == (not is_allowed)


@pytest.mark.parametrize(
    ("sent_s", "answered_s", "is_allowed"),
    [(0.0, 0.5, False), (0.0, 1.5, True), (1.5, 1.6, True), (1.5, 9.0, True), (2.5, 2.6, False)],
)
def test_others_may_be_refused_only_while_a_fault_lasts(
    sent_s: float, answered_s: float, is_allowed: bool
) -> None:
    book, windows = ledger(), list[Window]()
    steps: dict[float, Callable[[], object]] = {
        1.0: lambda: windows.append(book.strike(OVERLOAD, 1.0)),
        2.0: lambda: windows[0].close(2.0),
        sent_s: lambda: book.send(ask(1), sent_s),
        answered_s: lambda: book.answer(1, reply(503, retry_after_s=1), answered_s),
    }
    for _, step in sorted(steps.items()):
        step()

    assert (book.findings == []) == is_allowed
    assert book.tallies[OVERLOAD.name].touched == is_allowed
    assert book.tallies[NO_FAULT].touched == (not is_allowed)


@pytest.mark.parametrize(("waited_s", "is_allowed"), [(1.9, False), (2.1, True)])
def test_nobody_times_out_before_the_timeout(waited_s: float, is_allowed: bool) -> None:
    book = ledger()
    book.strike(STOP, 0.0)
    book.send(ask(1), 1.0)
    book.answer(1, reply(504), 1.0 + waited_s)

    assert (book.findings == []) == is_allowed


@pytest.mark.parametrize(("deaths", "is_allowed"), [(2, False), (3, True)])
def test_a_request_is_given_up_after_three_deaths(deaths: int, is_allowed: bool) -> None:
    book = ledger()
    book.send(ask(1), 0.0)
    for death in range(deaths):
        book.strike(KILL, 0.1 * death)
    book.answer(1, reply(502), 1.0)

    assert (book.findings == []) == is_allowed


def test_a_drain_loses_nothing_that_was_accepted() -> None:
    book = ledger()
    book.send(ask(1), 0.0)
    book.strike(DRAIN, 1.0)
    book.send(ask(2), 1.1)
    book.close(1, 1.2)
    book.close(2, 1.2)
    book.refuse(DRAIN)

    assert [finding.number for finding in book.findings] == [1]
    assert (book.left, book.lost, book.sent) == (2, 1, 3)
    assert (book.tallies[DRAIN.name].left, book.tallies[DRAIN.name].lost) == (2, 1)
