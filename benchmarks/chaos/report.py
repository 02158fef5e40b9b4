"""The report of a run: a table of the faults, benchmarks/results/chaos.md, and the violations."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.ledger import NO_FAULT, Finding, Ledger, Tally
from benchmarks.harness.report import ResultPage
from benchmarks.harness.sheets import Sheet

PAGE = ResultPage(
    title="Tests under faults",
    introduction="""
        Statuses of all requests to a gateway while its workers were killed, stopped and replaced, and clients
        misbehaved. For the faults and the answers that each allows, see
        [faults.py](../chaos/faults.py).
    """,
    script="scripts/chaos",
)
HOSTS_PAGE = ResultPage(
    title="Tests under faults of hosts",
    introduction="""
        Statuses of all requests to a gateway while its workers, which connect over TCP from two network
        namespaces, were killed with their hosts and cut off, and clients misbehaved. For the faults and the
        answers that each allows, see [faults.py](../chaos/faults.py).
    """,
    script="scripts/chaos",
)
_PARAGRAPH = """
    A request counts in the row of each fault that was active between its start and its end. *Left or
    refused*: the client ended it, or the connection closed and the fault allows that. *Lost*: no answer,
    although one was due. *Wrong*: the answer to another request, or a status that no active fault allows.
"""
_MAX_SHOWN = 20
_DIGITS = re.compile(r"[0-9]+")
_COLUMNS = (
    "fault",
    "injected",
    "requests touched",
    "answers by status",
    "left or refused",
    "lost",
    "wrong",
    "verdict",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices."""

    seconds: float
    seed: int
    faults: Sequence[str]
    rate: float
    workers: int
    hosts: int = 0

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return shlex.join(
            [
                *("scripts/chaos", "--seconds", f"{self.seconds:g}", "--seed", str(self.seed)),
                *("--rate", f"{self.rate:g}", "--workers", str(self.workers)),
                *(("--hosts", str(self.hosts)) if self.hosts else ()),
                *("--faults", ",".join(self.faults)),
            ]
        )


def sheet(ledger: Ledger, settings: Settings, *, notes: Sequence[str]) -> Sheet:
    names = [NO_FAULT, *(name for name in FAULTS if name in settings.faults)]
    rows = [_row(name, ledger.tallies[name], ledger) for name in names]
    where = f" on {settings.hosts} hosts" if settings.hosts else ""
    return Sheet(
        title=f"{settings.seconds:g} s at {settings.rate:g} requests/s, {settings.workers} workers{where}",
        columns=_COLUMNS,
        rows=[*rows, _totals(ledger, names)],
        notes=notes,
        emphasised="all",
    )


def page(tables: Sequence[Sheet], settings: Settings) -> str:
    """Write benchmarks/results/chaos.md, or chaos-hosts.md."""
    of = HOSTS_PAGE if settings.hosts else PAGE
    return of.text(paragraphs=[_PARAGRAPH], sheets=tables, command=settings.command)


def legend(settings: Settings) -> list[str]:
    """Describe the injected faults, and how to repeat the run."""
    faults = [f"{name}: {FAULTS[name].says}." for name in settings.faults]
    return [*faults, f"Repeat: {settings.command}"]


def findings(ledger: Ledger) -> list[str]:
    """Return the first violation of each kind, without its numbers; those without a request come first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in sorted(ledger.findings, key=lambda finding: finding.number is not None):
        kinds.setdefault(_DIGITS.sub("", finding.what), []).append(finding)
    shown = [
        f"{first} ({1 + len(rest)} times)" if rest else str(first)
        for first, *rest in list(kinds.values())[:_MAX_SHOWN]
    ]
    more = len(kinds) - len(shown)
    return [*shown, f"and {more} more kinds"] if more else shown


def _row(name: str, tally: Tally, ledger: Ledger) -> list[str]:
    bad = tally.lost or tally.wrong or any(name in one.fault.split("+") for one in ledger.findings)
    return [
        name,
        f"{tally.injected:,}" if name in FAULTS else "-",
        f"{tally.touched:,}",
        _counts(tally.statuses),
        *(f"{number:,}" for number in (tally.left, tally.lost, tally.wrong)),
        "failed" if bad else "passed" if tally.injected or name not in FAULTS else "not injected",
    ]


def _totals(ledger: Ledger, names: Sequence[str]) -> list[str]:
    injected = sum(ledger.tallies[name].injected for name in names)
    counts = (ledger.left, ledger.lost, ledger.wrong)
    return [
        *("all", f"{injected:,}", f"{ledger.sent:,}", _counts(ledger.statuses)),
        *(f"{number:,}" for number in counts),
        "failed" if ledger.findings else "passed",
    ]


def _counts(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())) or "-"
