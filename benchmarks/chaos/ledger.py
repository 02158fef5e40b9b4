"""The fate of every request, and whether the active faults allow it. Time is an argument."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from benchmarks.chaos.faults import DRAIN, Fault
from benchmarks.chaos.questions import Question
from uncork_loadtests.generator.http_reply import Reply

NO_FAULT = "(none)"
"""Tally of requests untouched by faults."""
# A request whose batch was lost twice waits for two workers, and then for those before it that run alone.
_BOUND_S = 30.0
# The gateway may send a batch to a worker that has just died.
_UNNOTICED_S = 1.0
# A request that loses so many workers gets 502.
_RUNS = 3
_GOOD = frozenset({200})
_LEAKS = (b"Traceback", b'File "', b".py")


@dataclass(slots=True, eq=False)
class Window:
    """The time in which a fault may affect any request."""

    fault: Fault
    opened_s: float
    closed_s: float = inf

    def close(self, now_s: float) -> None:
        """Later requests must not be affected."""
        self.closed_s = now_s


@dataclass(slots=True, eq=False)
class Tally:
    """The fates of the requests touched by a fault."""

    injected: int = 0
    touched: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    left: int = 0
    """Ended by the client, or closed without an answer where the fault allows it."""
    lost: int = 0
    wrong: int = 0


class Finding(NamedTuple):
    """A violation; ``number`` is that of its request, if any."""

    fault: str
    what: str
    number: int | None = None

    def __str__(self) -> str:
        whom = "" if self.number is None else f"request {self.number}: "
        return f"{self.fault}: {whom}{self.what}"


@dataclass(slots=True, eq=False)
class _Open:
    """An outstanding request."""

    question: Question
    sent_s: float
    waits_since_s: float
    own: Fault | None


class Ledger:
    """Enters every request when it is sent, and removes it at its one answer.

    Args:
        timeout_s: time limit of a batch; no request gets 504 sooner.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._open: dict[int, _Open] = {}
        self._windows: list[Window] = []
        self.sent = self.left = self.lost = self.wrong = 0
        self.statuses: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        """Requests by protocol, and by method of gRPC."""
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.findings: list[Finding] = []
        self.undisturbed: list[tuple[float, float]] = []
        """Times and seconds of the responses that no fault touched."""

    @property
    def outstanding(self) -> int:
        return len(self._open)

    # Faults

    def injected(self, fault: Fault) -> None:
        """Count a strike of a fault that affects only its own requests."""
        self.tallies[fault.name].injected += 1

    def strike(self, fault: Fault, now_s: float) -> Window:
        """Count a strike, and open a window in which the fault may affect any outstanding request."""
        self.injected(fault)
        oldest_s = min((request.sent_s for request in self._open.values()), default=now_s)
        self._windows = [one for one in self._windows if one.closed_s >= oldest_s]
        self._windows.append(window := Window(fault, now_s))
        return window

    def complain(self, fault: str, what: str) -> None:
        """Record a violation that is not about a request."""
        self.findings.append(Finding(fault, what))

    # Requests

    def send(self, question: Question, now_s: float, *, own: Fault | None = None) -> None:
        """Enter a request; ``own`` is the fault that it is."""
        self.sent += 1
        self.kinds[question.kind] += 1
        self._open[question.number] = _Open(question, now_s, now_s, own)

    def answer(self, number: int, reply: Reply, now_s: float) -> None:
        """Check a complete answer."""
        request = self._open.pop(number, None)
        status = reply.status
        if request is None:
            self._wrong({NO_FAULT}, f"answered twice, the second time with {status}", number)
            return
        self.statuses[status] += 1
        touched = self._touch(request)
        for name in touched:
            self.tallies[name].statuses[status] += 1
        if touched == {NO_FAULT}:
            self.undisturbed.append((now_s, now_s - request.sent_s))
        fault = self._fault_of(request, reply, now_s)
        if fault:
            waited_s = now_s - request.sent_s
            self._wrong(touched, f"{fault} (after {waited_s:.2f} s, body {reply.body[:200]!r})", number)

    def close(
        self, number: int, now_s: float, *, how: str = "closed without an answer", connected: bool = True
    ) -> None:
        """Handle a connection that was closed or never accepted; ignored if the request was answered."""
        request = self._open.pop(number, None)
        if request is None:
            return
        since_s = request.sent_s if connected else now_s
        is_refused = any(one.fault is DRAIN and one.opened_s <= since_s for one in self._windows)
        if is_refused or (request.own is not None and request.own.may_close):
            self._left(request)
        else:
            self._lost(request, f"{how} (after {now_s - request.sent_s:.2f} s)")

    def refuse(self, fault: Fault) -> None:
        """Count a request whose connection was refused, as the fault allows."""
        self.sent += 1
        self.left += 1
        self.tallies[fault.name].touched += 1
        self.tallies[fault.name].left += 1

    def leave(self, number: int) -> None:
        """Handle a connection that the client closed."""
        request = self._open.pop(number, None)
        if request is not None:
            self._left(request)

    def garble(self, number: int, what: str) -> None:
        """Record bytes that are not an answer, or that follow one."""
        request = self._open.pop(number, None)
        self._wrong(self._touch(request) if request else {NO_FAULT}, what, number)

    def restart(self, questions: Iterable[Question], now_s: float) -> None:
        """Count the time limit of pipelined requests from now, because the one before them was answered."""
        for question in questions:
            if question.number in self._open:
                self._open[question.number].waits_since_s = now_s

    def sweep(self, now_s: float) -> None:
        """Count overdue requests as lost."""
        overdue = [request for request in self._open.values() if now_s - request.waits_since_s > _BOUND_S]
        for request in overdue:
            del self._open[request.question.number]
            self._lost(request, f"no answer within {now_s - request.sent_s:.1f} s")

    def _felt(self, request: _Open) -> list[Window]:
        """Return the windows that overlap the request."""
        return [window for window in self._windows if window.closed_s >= request.sent_s]

    def _allowed(self, request: _Open, now_s: float) -> set[int]:
        """Return the statuses allowed for a request."""
        felt = self._felt(request)
        allowed = set[int]().union(*(window.fault.others for window in felt))
        if now_s - request.sent_s < self._timeout_s:
            allowed.discard(504)
        allowed |= _GOOD if request.own is None else request.own.own
        deaths = [one.fault.fatal for one in felt if one.opened_s > request.sent_s - _UNNOTICED_S]
        if sum(deaths) >= _RUNS:
            allowed.add(502)
        return allowed

    def _fault_of(self, request: _Open, reply: Reply, now_s: float) -> str:
        """Return the fault of an answer, or ""."""
        status = reply.status
        allowed = self._allowed(request, now_s)
        if status not in allowed:
            return f"status {status}, allowed: {', '.join(map(str, sorted(allowed)))}"
        if status == 200:
            right = request.question.is_answered_by(reply.body)
            return "" if right else "the body is not the expected answer"
        if status == 503 and reply.retry_after_s is None:
            return "503 without Retry-After"
        if any(leak in reply.body for leak in _LEAKS):
            return f"{status} with a traceback in the body"
        return ""

    def _touch(self, request: _Open) -> set[str]:
        own = {request.own.name} if request.own is not None else set()
        touched = own.union(window.fault.name for window in self._felt(request)) or {NO_FAULT}
        for name in touched:
            self.tallies[name].touched += 1
        return touched

    def _left(self, request: _Open) -> None:
        self.left += 1
        for name in self._touch(request):
            self.tallies[name].left += 1

    def _lost(self, request: _Open, what: str) -> None:
        self.lost += 1
        touched = self._touch(request)
        for name in touched:
            self.tallies[name].lost += 1
        self.findings.append(Finding("+".join(sorted(touched)), what, request.question.number))

    def _wrong(self, touched: set[str], what: str, number: int) -> None:
        self.wrong += 1
        for name in touched:
            self.tallies[name].wrong += 1
        self.findings.append(Finding("+".join(sorted(touched)), what, number))
