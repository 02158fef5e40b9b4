"""The record of one process's responses: a sample of each, and the first of each kind of error."""

from array import array
from typing import NamedTuple

import msgspec
import numpy as np

from uncork_loadtests.generator.http_reply import Reply
from uncork_loadtests.generator.samples import SAMPLE, UNKNOWN, Samples
from uncork_loadtests.traffic.payloads import same_answer

_MAX_CHARACTERS = 300
_END_OF_HEAD = b"\r\n\r\n"
_CODES = {"f8": "d", "f4": "f", "i4": "i", "b1": "b"}


class Asked(NamedTuple):
    """An outstanding request. Times are those of time.monotonic()."""

    scheduled_s: float
    fired_s: float
    sent_s: float
    request: bytes
    expected: bytes | None

    @property
    def body_bytes(self) -> int:
        return len(self.request) - self.request.index(_END_OF_HEAD) - len(_END_OF_HEAD)


class _Problem(msgspec.Struct):
    detail: str


class AnswerLog:
    """Records responses and compares them with the expected ones. Samples count from `start_s`."""

    def __init__(self) -> None:
        self._columns = {name: array(_CODES[SAMPLE[name].str[1:]]) for name in SAMPLE.names or ()}
        self._appends = tuple(column.append for column in self._columns.values())
        self.first_wrong = ""
        """Request, expected answer and answer, shortened; empty if every answer was right."""
        self.first_errors: dict[int, str] = {}
        """The first error text by status, shortened."""

    def samples(self, *, first: int = 0) -> Samples:
        """Return a copy of all samples from number `first` on."""
        found = np.empty(len(self._columns["status"]) - first, dtype=SAMPLE)
        for name, column in self._columns.items():
            found[name] = column[first:]
        return found

    def add(self, asked: Asked, reply: Reply, *, first_s: float, now_s: float, start_s: float) -> None:
        """Record a response that began at `first_s` and was complete at `now_s`."""
        wrong = False
        if reply.status // 100 != 2:
            if reply.status not in self.first_errors:
                self.first_errors[reply.status] = _error_text(reply.body)
        elif asked.expected is not None and not same_answer(reply.body, asked.expected):
            wrong = True
            self._note_wrong(asked, reply)
        self._add(
            asked.scheduled_s - start_s,
            asked.fired_s - start_s,
            asked.sent_s - start_s,
            now_s - start_s,
            reply.status,
            reply.batch_rows,
            reply.queued_ms,
            reply.batch_ms,
            wrong,
            first_s - start_s,
            reply.chunks,
            asked.body_bytes,
        )

    def add_missing(self, asked: Asked, *, status: int, start_s: float) -> None:
        """Record a request that was sent and stays without a response."""
        times = (asked.scheduled_s, asked.fired_s, asked.sent_s)
        self._add_missing(*times, status=status, start_s=start_s, body_bytes=asked.body_bytes)

    def add_unsent(self, scheduled_s: float, fired_s: float, *, status: int, start_s: float) -> None:
        """Record a request that was never sent."""
        self._add_missing(scheduled_s, fired_s, UNKNOWN, status=status, start_s=start_s, body_bytes=0)

    def _add_missing(self, *times_s: float, status: int, start_s: float, body_bytes: int) -> None:
        times = (time_s - start_s for time_s in times_s)
        self._add(*times, UNKNOWN, status, 0, UNKNOWN, UNKNOWN, False, UNKNOWN, 0, body_bytes)

    def _add(self, *values: float) -> None:
        """Add one sample: its fields in the order of SAMPLE."""
        for append, value in zip(self._appends, values, strict=True):
            append(value)  # type: ignore[arg-type]

    def _note_wrong(self, asked: Asked, reply: Reply) -> None:
        if not self.first_wrong:
            sent = asked.request.partition(_END_OF_HEAD)[2][:80]
            expected, got = (asked.expected or b"")[:80], reply.body[:80]
            self.first_wrong = f"sent {sent!r}, expected {expected!r}, got {got!r}"


def _error_text(body: bytes) -> str:
    """Return the detail of a problem document, or the body, on one line."""
    try:
        text = msgspec.json.decode(body, type=_Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode(errors="replace")
    text = " ".join(text.split())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} ..."
