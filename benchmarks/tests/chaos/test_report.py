"""The table of a chaos run."""

from benchmarks.chaos.faults import DRAIN, KILL, POISON
from benchmarks.chaos.ledger import NO_FAULT, Ledger
from benchmarks.chaos.questions import ask
from benchmarks.chaos.report import Settings, sheet
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
