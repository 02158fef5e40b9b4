"""Limits on the time that a client may take to send and to read, and on a connection's age."""

import asyncio
import math
import random
from collections.abc import Callable
from typing import NamedTuple

from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.connection.timeouts import MIN_BODY_BYTES_PER_S, abort_later, slow_body
from uncork_gateway.grpc.http2.frame_reader import FrameReader
from uncork_gateway.grpc.http2.frames import ConnectionFault, ErrorCode
from uncork_gateway.grpc.http2.session import Session

_AGE_JITTER = 0.1


class Timeouts:
    """The only timer of a connection, as :class:`uncork_gateway.connection.timeouts.Timeouts` for HTTP.

    Args:
        drain: refuses new streams with a reason, and closes when all calls have ended.
        close: cancels all calls.
    """

    def __init__(
        self,
        session: Session,
        reader: FrameReader,
        transport: asyncio.Transport,
        clients: ClientLimits,
        *,
        drain: Callable[[str], None],
        close: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._session = session
        self._reader = reader
        self._transport = transport
        self._clients = clients
        self._drain = drain
        self._close = close
        limits = self._limits = session.limits
        self._loop = loop
        self._interval_s = (
            min(
                clients.head_timeout_s,
                clients.body_timeout_s,
                limits.unread_timeout_s,
                limits.max_connection_age_s,
                limits.max_connection_age_grace_s,
            )
            / 2
        )
        now = loop.time()
        self._ends_at = now + limits.max_connection_age_s * random.uniform(1 - _AGE_JITTER, 1 + _AGE_JITTER)
        self._closes_at = math.inf
        self._made_at = now
        self._parts: dict[str, _Mark] = {}
        self._unread: _Mark | None = None
        self._bodies: dict[int, _Mark] = {}
        self._answers: dict[int, _Mark] = {}
        self._timer = loop.call_later(self._interval_s, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def linger(self) -> None:
        """Stop all checks, send no more, and abort the connection after five seconds."""
        self._timer.cancel()
        self._timer = abort_later(self._transport, self._loop)

    def _check(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._interval_s, self._check)
        self._check_age(now)
        self._check_frames(now)
        self._check_reading(now)
        self._check_answers(now)
        self._check_bodies(now)

    def _check_age(self, now: float) -> None:
        if now >= self._closes_at:
            self._close()
        elif now >= self._ends_at and self._closes_at == math.inf:
            self._closes_at = now + self._limits.max_connection_age_grace_s
            self._drain("the connection has reached its age limit")

    def _check_frames(self, now: float) -> None:
        """Check that the preface arrives, and that heads and frames complete in time."""
        reader = self._reader
        if not reader.has_begun:
            if now - self._made_at >= self._clients.head_timeout_s:
                self._close()
            return
        parts = (
            ("header block", reader.is_within_block, reader.blocks, self._clients.head_timeout_s),
            ("frame", reader.is_within_frame, reader.progress, self._clients.body_timeout_s),
        )
        for part, is_within, progress, limit_s in parts:
            mark = self._parts.get(part)
            if not is_within or mark is None or mark.value != progress:
                self._parts[part] = _Mark(now, progress)
            elif now - mark.since >= limit_s:
                text = f"a {part} took longer than {limit_s:g} s"
                self._session.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text))
                return

    def _check_reading(self, now: float) -> None:
        """Check that a client with much to read reads some of it."""
        if not self._session.outbox.is_paused:
            self._unread = None
            return
        unread_bytes = self._transport.get_write_buffer_size()
        if self._unread is None or unread_bytes < self._unread.value:
            self._unread = _Mark(now, unread_bytes)
        elif now - self._unread.since >= self._limits.unread_timeout_s:
            self._transport.abort()

    def _check_answers(self, now: float) -> None:
        """Check that the client opens its windows for responses, except those queued in the transport."""
        before, self._answers = self._answers, {}
        outbox = self._session.outbox
        for number in [] if outbox.is_paused else list(outbox.blocked):
            sent_bytes = self._session.streams[number].sent_bytes
            mark = before.get(number)
            if mark is None or mark.value != sent_bytes:
                mark = _Mark(now, sent_bytes)
            elif now - mark.since >= self._limits.unread_timeout_s:
                self._session.reset_stream(number, ErrorCode.ENHANCE_YOUR_CALM)
                continue
            self._answers[number] = mark

    def _check_bodies(self, now: float) -> None:
        """Check that messages grow; concurrent messages share the minimum speed."""
        before, self._bodies = self._bodies, {}
        incomplete = [stream for stream in self._session.streams.values() if stream.is_incomplete]
        for stream in incomplete:
            mark = before.get(stream.number)
            if mark is None or self._session.windows.must_wait:
                mark = _Mark(now, stream.received_bytes)
            waited_s, grown_bytes = now - mark.since, stream.received_bytes - mark.value
            if waited_s >= self._clients.body_timeout_s:
                if grown_bytes < MIN_BODY_BYTES_PER_S * waited_s / len(incomplete):
                    stream.give_up(slow_body(grown_bytes, waited_s))
                    continue
                mark = _Mark(now, stream.received_bytes)
            self._bodies[stream.number] = mark


class _Mark(NamedTuple):
    """A value, and the time since when it has not changed."""

    since: float
    value: int
