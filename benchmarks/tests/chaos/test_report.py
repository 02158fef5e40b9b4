"""The table of a chaos run."""

from benchmarks.chaos.faults import DRAIN, KILL, POISON
from benchmarks.chaos.ledger import NO_FAULT, Ledger
from benchmarks.chaos.questions import ask
from benchmarks.chaos.report import Settings, findings, sheet
from uncork_loadtests.generator.http_reply import Reply

SETTINGS = Settings(seconds=20, seed=7, faults=["kill", "poison", "drain"], rate=300, workers=3)
FINE = Reply(500, b"{}")


def ledger(*, poisons: int, losses: int) -> Ledger:
    """A ledger with answered poison, and with requests lost while a worker was dead."""
    book = Ledger(timeout_s=2.0)
    book.injected(POISON)
    for number in range(poisons):
        book.send(ask(number), 0.0, own=POISON)
        book.answer(number, FINE, 0.1)
    book.injected(KILL)
    book.strike(KILL, 1.0)
    for number in range(losses):
        book.send(ask(number), 1.0)
        book.close(number, 1.1)
    return book


def test_each_fault_has_a_line_and_all_have_one() -> None:
    table = sheet(ledger(poisons=1200, losses=3), SETTINGS, notes=["Memory was flat."])

    assert [list(row) for row in table.rows] == [
        [NO_FAULT, "-", "0", "-", "0", "0", "0", "passed"],
        [KILL.name, "1", "3", "-", "0", "3", "0", "failed"],
        [POISON.name, "1", "1,200", "500: 1,200", "0", "0", "0", "passed"],
        [DRAIN.name, "0", "0", "-", "0", "0", "0", "not injected"],
        ["all", "2", "1,203", "500: 1,200", "0", "3", "0", "failed"],
    ]
    assert "Memory was flat." in table.notes


def test_what_was_wrong_is_told_up_to_a_bound() -> None:
    few, many = findings(ledger(poisons=0, losses=2)), findings(ledger(poisons=0, losses=25))

    assert few == [f"kill: request {number}: closed without an answer (after 0.10 s)" for number in (0, 1)]
    assert (len(many), many[-1]) == (21, "and 5 more")
    assert findings(ledger(poisons=9, losses=0)) == []


def test_a_complaint_fails_its_fault_and_the_run() -> None:
    book = ledger(poisons=1, losses=30)
    book.complain(KILL.name, "not all workers were ready again")

    verdicts = {row[0]: row[-1] for row in sheet(book, SETTINGS, notes=[]).rows}

    assert verdicts == {
        NO_FAULT: "passed",
        "kill": "failed",
        "poison": "passed",
        "drain": "not injected",
        "all": "failed",
    }
    assert findings(book)[0] == "kill: not all workers were ready again"
