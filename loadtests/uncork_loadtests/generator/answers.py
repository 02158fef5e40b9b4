"""What came of the requests of one process: a sample of each, and the first of each thing that went wrong."""

from typing import NamedTuple

import msgspec

from uncork_loadtests.generator.http_reply import Reply
from uncork_loadtests.generator.samples import NOT_TOLD, SHED, Recorder
from uncork_loadtests.traffic.payloads import same_answer

_MOST_CHARACTERS = 300


class Asked(NamedTuple):
    """A request that is waited for. Times are those of time.monotonic()."""

    scheduled_s: float
    fired_s: float
    sent_s: float
    request: bytes
    expected: bytes | None


class _Problem(msgspec.Struct):
    detail: str


class Answers:
    """Records and judges answers. Times are those of time.monotonic(); samples count from `start_s`."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.without_retry_after = 0
        self.first_wrong = ""
        """What was sent, expected and answered, shortened; empty if all was right."""
        self.first_errors: dict[int, str] = {}
        """By status that is not 2xx: what the first answer with it said, shortened."""

    def add(self, asked: Asked, reply: Reply, *, first_s: float, now_s: float, start_s: float) -> None:
        """Record an answer that began at `first_s` and was whole at `now_s`, and compare it."""
        head = reply.head
        wrong = False
        if head.status // 100 != 2:
            if head.status not in self.first_errors:
                self.first_errors[head.status] = _text(reply.body)
        elif asked.expected is not None and not same_answer(reply.body, asked.expected):
            wrong = True
            self._note_wrong(asked, reply)
        if head.status == SHED and head.retry_after_s is None:
            self.without_retry_after += 1
        self.recorder.add(
            asked.scheduled_s - start_s,
            asked.fired_s - start_s,
            asked.sent_s - start_s,
            now_s - start_s,
            head.status,
            head.batch_size or 0,
            NOT_TOLD if head.held_ms is None else head.held_ms,
            NOT_TOLD if head.batch_ms is None else head.batch_ms,
            wrong,
            first_s - start_s,
            reply.chunks,
        )

    def add_missing(
        self, scheduled_s: float, fired_s: float, sent_s: float, *, status: int, start_s: float
    ) -> None:
        """Record a request that has no answer and will have none."""
        times = (time_s - start_s for time_s in (scheduled_s, fired_s, sent_s))
        self.recorder.add(*times, NOT_TOLD, status, 0, NOT_TOLD, NOT_TOLD, False, NOT_TOLD, 0)

    def _note_wrong(self, asked: Asked, reply: Reply) -> None:
        if not self.first_wrong:
            sent = asked.request.partition(b"\r\n\r\n")[2][:80]
            expected, got = (asked.expected or b"")[:80], reply.body[:80]
            self.first_wrong = f"sent {sent!r}, expected {expected!r}, got {got!r}"


def _text(body: bytes) -> str:
    """What an error says, in one line: the detail of a problem document, else the body as it is."""
    try:
        text = msgspec.json.decode(body, type=_Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode(errors="replace")
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."
