"""Clients of all kinds: good ones, slow ones, those that leave, and those that send nonsense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httptools

from tests.simulation.network import End
from tests.simulation.workers import Row, result_of, status_of, streamed
from uncork_workers.wire.schema import ApiDescription

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

_PATIENCE_S = 200.0
# A client with a timeout waits so much longer for its response.
_LATE_S = 0.5
_MOST_REQUESTS = 4
_INTERIM = 200


@dataclass
class Ask:
    """A request.

    Attributes:
        rows: its rows, in one body of the API or, if there are ``many``, of V1.
        is_bad: True if it cannot be read.
        sent_at: when its last byte was written.
    """

    api: str
    rows: list[Row]
    many: bool
    raw: bytes = field(default=b"", repr=False)
    is_bad: bool = False
    timeout_s: float | None = None
    sent_at: float | None = None


@dataclass
class Got:
    """A response, as far as it has arrived."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    is_complete: bool = False


class Client:
    """Sends some requests on one connection, and checks the responses.

    ``only`` is the API of a client that does nothing odd, and must get a result.
    """

    end: End

    def __init__(self, schedule: Schedule, name: str, *, only: ApiDescription | None = None) -> None:
        self.name = name
        self._schedule, self._only = schedule, only
        self._random = schedule.draws.random(name)
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._asks: list[Ask] = []
        self._got: list[Got] = []
        self._changed = asyncio.Event()
        self._is_slow = self._leaves = self._half_closes = self._is_closed = False

    def _is_odd(self, what: str, probability: float) -> bool:
        return self._schedule.is_odd(f"{self.name}.{what}", probability)

    @property
    def has_left(self) -> bool:
        """True if the gateway knows since an earlier time that the client has gone."""
        lost_at = self.end.peer.lost_at
        return lost_at is not None and lost_at < self._schedule.loop.now()

    async def run(self, start_s: float | None = None) -> None:
        """Connect, ask, and check what comes back."""
        random = self._random
        await asyncio.sleep(start_s or random.uniform(0, random.choice([0.01, 0.2, 3.0])))
        self.end = self._schedule.connect(self, random)
        pipelines = self._is_odd("pipelines", 0.2)
        for number in range(1 if self._only else _MOST_REQUESTS):
            if number and not self._schedule.draws.happens(f"{self.name}.{number}", 0.5):
                continue
            self._asks.append(self._ask(number))
            await self._send(self._asks[-1], number)
            if not pipelines:
                await self._until(self._has_all)
            if self._is_closed or self._leaves:
                break
            await asyncio.sleep(random.choice([0.0, 0.0, 0.02, 1.0]))
        if self._is_odd("half_closes", 0.1):
            self._half_closes = True
            self.end.write_eof()
        await self._until(self._has_all)
        self._check()
        self._leaves = True
        self.end.close()

    async def _until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not (condition() or self._is_closed or self._leaves):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._schedule.violated(f"{self.name} waits in vain: {self._asks}, {self._got}")

    def _has_all(self) -> bool:
        return len(self._got) == len(self._asks) and self._got[-1].is_complete

    # What it sends

    def _ask(self, number: int) -> Ask:
        schedule, random = self._schedule, self._schedule.draws.random(f"{self.name}.{number}!")
        api = self._only or random.choice(schedule.service.apis)
        many = not (api.streams or self._only) and random.random() < 0.4
        count = random.choice([1, 2, 3, 8]) if many else 1
        rows = [schedule.row(self, random, repeats=api.coalesce) for _ in range(count)]
        ask = Ask(api.name, rows, many)
        if self._is_odd(f"{number}.bad_row", 0.05):
            rows[-1]["status"] = random.choice([422, 500])
        if schedule.fails(f"{self.name}.{number}.kills", 0.02):
            rows[-1]["kills"] = True
        headers = [b"host: sim", b"content-type: application/json", b"x-tenant: %d" % random.randrange(3)]
        if api.classes is not None and random.random() < 0.5:
            headers.append(b"x-request-class: bulk")
        if self._is_odd(f"{number}.timeout", 0.15):
            ask.timeout_s = random.choice([0.001, 0.05, 0.5])
            headers.append(b"x-request-timeout-ms: %d" % (ask.timeout_s * 1000))
        body = json.dumps({"instances": rows} if many else rows[0]).encode()
        if self._is_odd(f"{number}.bad_body", 0.05):
            body, ask.is_bad = body[:-1] + b"<", True
        path = f"/v1/models/sim.{api.name}:predict" if many else api.route
        ask.raw = self._raw(path.encode(), headers, body, number)
        if self._is_odd(f"{number}.bad_head", 0.02):
            ask.raw, ask.is_bad = b"BREW / HTCPCP\r\n\r\n", True
        return ask

    def _raw(self, path: bytes, headers: list[bytes], body: bytes, number: int) -> bytes:
        if self._is_odd(f"{number}.expects_continue", 0.05):
            headers.append(b"expect: 100-continue")
        if self._is_odd(f"{number}.chunked", 0.15):
            headers.append(b"transfer-encoding: chunked")
            pieces = [*filter(None, self._pieces(body, 3)), b""]
            body = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
        else:
            headers.append(b"content-length: %d" % len(body))
        return b"\r\n".join([b"POST %b HTTP/1.1" % path, *headers, b"", body])

    async def _send(self, ask: Ask, number: int) -> None:
        """Send a request, whole or in pieces; the client may leave on the way or soon after."""
        raw, random = ask.raw, self._random
        leaves = self._is_odd(f"{number}.leaves", 0.08)
        if leaves and random.random() < 0.5:
            raw = raw[: random.randrange(len(raw))]
        is_slow = self._is_odd(f"{number}.is_slow", 0.05)
        self._is_slow |= is_slow
        pause_s = random.choice([0.01, 2.0, 6.0]) if is_slow else 0.0
        for piece in self._pieces(raw, 4 if is_slow else random.choice([1, 1, 1, 3])):
            self.end.write(piece)
            await asyncio.sleep(pause_s)
        if self._is_odd(f"{number}.does_not_read", 0.05):
            self._is_slow = True
            self.end.pause_reading()
            await asyncio.sleep(random.choice([0.1, 3.0]))
            self.end.resume_reading()
        if leaves:
            self._leaves = True
            await asyncio.sleep(random.choice([0.0, 0.001, 0.02, 0.3]))
            random.choice([self.end.abort, self.end.abort, self.end.close])()
        elif self._schedule.fails(f"{self.name}.{number}.is_cut_off", 0.02):
            self._leaves = True
            self.end.reset()
            self.end.peer.reset()
        else:
            ask.sent_at = self._schedule.loop.now()

    def _pieces(self, raw: bytes, count: int) -> list[bytes]:
        cuts = sorted(self._random.randrange(len(raw)) for _ in range(count - 1))
        return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    # What comes back: asyncio.Protocol, and the parser's methods

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._changed.set()

    def eof_received(self) -> None:
        self._is_closed = True
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.eof_received()

    def pause_writing(self) -> None:
        """Its requests are small."""

    resume_writing = pause_writing

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode()] = value.decode()

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) >= _INTERIM:
            self._got.append(Got(status, self._headers))

    def on_body(self, body: bytes) -> None:
        self._got[-1].body += body

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= _INTERIM:
            self._got[-1].is_complete = True
            self._check_time()

    # Checks

    def _check_time(self) -> None:
        ask, is_first = self._asks[0], len(self._got) == 1
        if (
            ask.timeout_s is None
            or ask.sent_at is None
            or not is_first
            or self.end.is_uneven
            or self._is_slow
        ):
            return
        waited_s = self._schedule.loop.now() - ask.sent_at
        if waited_s > ask.timeout_s + _LATE_S:
            self._schedule.violated(f"{self.name} waited {waited_s:g} s for {self._got}: {ask}")

    def _check(self) -> None:
        if len(self._got) > len(self._asks):
            self._schedule.violated(f"{self.name} got {self._got} for {self._asks}")
        for ask, got in zip(self._asks, self._got, strict=False):
            self._schedule.statuses[got.status] += 1
            problem = self._problem(ask, got)
            if problem or (self._only and got.status != 200):
                self._schedule.violated(f"{self.name}: {problem}: {ask}, {got}")
        is_good = not (self._is_slow or self._half_closes) and all(
            ask.sent_at is not None for ask in self._asks
        )
        last = self._got[-1] if self._got else None
        ends = last is not None and (last.headers.get("connection") == "close" or not last.is_complete)
        if len(self._got) < len(self._asks) and is_good and not ends and not self._schedule.is_stopping:
            self._schedule.violated(f"{self.name} got no response: {self._asks}, {self._got}")

    def _problem(self, ask: Ask, got: Got) -> str:
        """Return what is wrong with a response; empty if nothing is."""
        if got.status != 200:
            allowed = self._schedule.allowed(ask, is_slow=self._is_slow)
            return "" if got.status in allowed else "a status that nothing explains"
        if ask.is_bad or status_of(ask.rows) != 200:
            return "a result for nonsense"
        if "transfer-encoding" in got.headers:
            whole = b"".join(streamed(ask.api, ask.rows[0]))
            is_right = got.body == whole if got.is_complete else whole.startswith(got.body)
            return "" if is_right else "another stream"
        if not got.is_complete:
            return "" if self._leaves else "half a response"
        said = json.loads(got.body)
        results = said["predictions"] if ask.many else [said]
        return "" if results == [result_of(ask.api, row) for row in ask.rows] else "another result"
