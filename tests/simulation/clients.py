"""Clients over HTTP: good ones, slow ones, those that leave, and those that send nonsense."""

from __future__ import annotations

import asyncio
import gzip
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools

from tests.simulation.network import End
from tests.simulation.requests import NATIVE, Ask, Asked, some_ask
from tests.simulation.workers import result_of, streamed
from uncork_workers.wire.schema import ApiDescription

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

_PATIENCE_S = 200.0
# A client with a timeout waits so much longer for its response.
_LATE_S = 0.5
_MOST_REQUESTS = 4
_INTERIM = 200


@dataclass
class Got:
    """A response, as far as it has arrived."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    is_complete: bool = False


class Caller:
    """The connection of a client, as an asyncio.Protocol.

    Attributes:
        is_closed: True once the gateway sends no more; ``leaves``: once the client has gone.
        is_slow: True if it sends or reads so slowly that the gateway may give up.
    """

    end: End

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule, self.name = schedule, name
        self._random = schedule.draws.random(name)
        self.changed = asyncio.Event()
        self.is_slow = self.leaves = self.is_closed = False

    async def connect(self, start_s: float | None, *, grpc: bool = False) -> None:
        await asyncio.sleep(start_s or self._random.uniform(0, self._random.choice([0.01, 0.2, 3.0])))
        self.end = self.schedule.connect(self.name, self, self._random, grpc=grpc)

    def has(self, number: int) -> bool:
        return self.schedule.draws.happens(f"{self.name}.{number}", 0.5)

    def is_odd(self, what: str, probability: float) -> bool:
        return self.schedule.is_odd(f"{self.name}.{what}", probability)

    @property
    def has_left(self) -> bool:
        """True if the gateway has known for some time that the client has gone."""
        lost_at = self.end.peer.lost_at
        return lost_at is not None and lost_at < self.schedule.loop.now()

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not (condition() or self.is_closed or self.leaves):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            self.schedule.violated(f"{self.name} waits in vain: {vars(self)}")

    def pieces(self, raw: bytes, count: int) -> list[bytes]:
        cuts = sorted(self._random.randrange(len(raw)) for _ in range(count - 1))
        return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    @abstractmethod
    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> None:
        self.is_closed = True
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.eof_received()

    def pause_writing(self) -> None:
        """Its requests are small."""

    resume_writing = pause_writing


class Client(Caller):
    """Sends some requests on one connection, and checks the responses.

    ``only`` is the API of a client that does nothing odd, and must get a result.
    """

    def __init__(
        self, schedule: Schedule, name: str, *, only: tuple[Asked, ApiDescription] | None = None
    ) -> None:
        super().__init__(schedule, name)
        self._only = only
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._asks: list[Ask] = []
        self._got: list[Got] = []
        self._half_closes = False

    async def run(self, start_s: float | None = None) -> None:
        """Connect, ask, and check what comes back."""
        await self.connect(start_s)
        pipelines = self.is_odd("pipelines", 0.2)
        for number in range(1 if self._only else _MOST_REQUESTS):
            if number and not self.has(number):
                continue
            self._asks.append(self._ask(number))
            await self._send(self._asks[-1], number)
            if not pipelines:
                await self.until(self._has_all)
            if self.is_closed or self.leaves:
                break
            await asyncio.sleep(self._random.choice([0.0, 0.0, 0.02, 1.0]))
        if self.is_odd("half_closes", 0.1):
            self._half_closes = True
            self.end.write_eof()
        await self.until(self._has_all)
        self._check()
        self.leaves = True
        self.end.close()

    def _has_all(self) -> bool:
        return len(self._got) == len(self._asks) and self._got[-1].is_complete

    # What it sends

    def _ask(self, number: int) -> Ask:
        schedule, random = self.schedule, self.schedule.draws.random(f"{self.name}.{number}!")
        service, api = target = self._only or schedule.target(random)
        form = NATIVE if self._only or api.streams or random.random() < 0.4 else random.choice(schedule.forms)
        is_raw = api.input["kind"] == "raw"
        many = not (api.streams or self._only or is_raw) and (form is not NATIVE or bool(api.task))
        ask = some_ask(schedule, self, f"{self.name}.{number}", random, target, many=many)
        ask.read = form.read
        if form is NATIVE and schedule.relays_native:
            ask.timeout_s = None
        headers, body = form.write(ask.rows, api, random)
        headers |= {"host": "sim", "x-tenant": f"{random.randrange(3)}"}
        if ask.id:
            headers["x-request-id"] = ask.id
        if api.classes is not None and random.random() < 0.5:
            headers["x-request-class"] = "bulk"
        if api.classes is not None and self.is_odd(f"{number}.unknown_class", 0.05):
            headers["x-request-class"] = "unknown"
            ask.faults.add(400)
        if ask.timeout_s is not None:
            headers["x-request-timeout-ms"] = f"{ask.timeout_s * 1000:g}"
        if is_raw and form is not NATIVE:
            ask.faults.add(400)
        if not is_raw and self.is_odd(f"{number}.bad_body", 0.05):
            body = body[:-1]
            ask.faults.add(400)
        body = self._encoded(ask, headers, body, number)
        path = form.path.format(ask.model) or service.route_of(api)
        ask.raw = self._raw(path, headers, body, number)
        if self.is_odd(f"{number}.bad_head", 0.02):
            ask.raw, ask.faults, ask.id = b"BREW / HTCPCP\r\n\r\n", {400}, ""
        return ask

    def _encoded(self, ask: Ask, headers: dict[str, str], body: bytes, number: int) -> bytes:
        """Return the body, perhaps compressed, too large, or of an unknown type."""
        size = len(body)
        if self.is_odd(f"{number}.zipped", 0.1):
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, mtime=0)
        if self.is_odd(f"{number}.unknown_encoding", 0.02):
            headers["content-encoding"] = "br"
            ask.faults.add(415)
        if ask.read is NATIVE.read and ask.api.input["kind"] != "raw" and self.is_odd(f"{number}.csv", 0.02):
            headers["content-type"] = "text/csv"
            ask.faults.add(415)
        if max(size, len(body)) > self.schedule.settings.max_body_bytes:
            ask.faults.add(413)
        return body

    def _raw(self, path: str, headers: dict[str, str], body: bytes, number: int) -> bytes:
        if self.is_odd(f"{number}.expects_continue", 0.05):
            headers["expect"] = "100-continue"
        if self.is_odd(f"{number}.chunked", 0.15):
            headers["transfer-encoding"] = "chunked"
            pieces = [*filter(None, self.pieces(body, 3)), b""]
            body = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
        else:
            headers["content-length"] = f"{len(body)}"
        lines = [f"POST {path} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()], "", ""]
        return "\r\n".join(lines).encode() + body

    async def _send(self, ask: Ask, number: int) -> None:
        """Send a request, whole or in pieces; the client may leave on the way or soon after."""
        raw, random = ask.raw, self._random
        leaves = self.is_odd(f"{number}.leaves", 0.08)
        if leaves and random.random() < 0.5:
            raw = raw[: random.randrange(1, len(raw))]
        is_slow = self.is_odd(f"{number}.is_slow", 0.05)
        self.is_slow |= is_slow
        pause_s = random.choice([0.01, 2.0, 6.0]) if is_slow else 0.0
        for piece in self.pieces(raw, 4 if is_slow else random.choice([1, 1, 1, 3])):
            self.end.write(piece)
            await asyncio.sleep(pause_s)
        if self.is_odd(f"{number}.does_not_read", 0.05):
            self.is_slow = True
            self.end.pause_reading()
            await asyncio.sleep(random.choice([0.1, 3.0]))
            self.end.resume_reading()
        if ask.api.streams and not leaves and self.is_odd(f"{number}.leaves_in_stream", 0.2):
            leaves = True
            await self.until(lambda: bool(self._got) and bool(self._got[-1].body))
        if leaves:
            self.leaves = True
            await asyncio.sleep(random.choice([0.0, 0.001, 0.02, 0.3]))
            random.choice([self.end.abort, self.end.abort, self.end.close])()
        elif self.schedule.fails(f"{self.name}.{number}.is_cut_off", 0.02):
            self.leaves = True
            self.end.reset()
            self.end.peer.reset()
        else:
            ask.sent_at = self.schedule.loop.now()

    # What comes back: asyncio.Protocol, and the parser's methods

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self.changed.set()

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
        if ask.timeout_s is None or ask.sent_at is None or not is_first or self.end.is_uneven or self.is_slow:
            return
        waited_s = self.schedule.loop.now() - ask.sent_at
        if waited_s > ask.timeout_s + _LATE_S:
            self.schedule.violated(f"{self.name} waited {waited_s:g} s for {self._got}: {ask}")

    def _check(self) -> None:
        if len(self._got) > len(self._asks):
            self.schedule.violated(f"{self.name} got {self._got} for {self._asks}")
        for ask, got in zip(self._asks, self._got, strict=False):
            self.schedule.statuses[got.status] += 1
            problem = self._problem(ask, got)
            if problem or (self._only and got.status != 200):
                self.schedule.violated(f"{self.name}: {problem}: {ask}, {got}")
        is_good = not (self.is_slow or self._half_closes) and all(
            ask.sent_at is not None for ask in self._asks
        )
        last = self._got[-1] if self._got else None
        ends = last is not None and (last.headers.get("connection") == "close" or not last.is_complete)
        if len(self._got) < len(self._asks) and is_good and not ends and not self.schedule.is_stopping:
            self.schedule.violated(f"{self.name} got no response: {self._asks}, {self._got}")

    def _problem(self, ask: Ask, got: Got) -> str:
        """Describe what is wrong with a response; empty if it is right."""
        service, model = ask.service, ask.model
        if ask.id and not self.is_slow and got.headers.get("x-request-id", ask.id) != ask.id:
            return "the response to another request"
        if got.status != 200:
            if (self.leaves or self._half_closes) and not got.is_complete:
                return ""  # its text is cut
            is_slow = self.is_slow and got.status == 408
            is_explained = is_slow or service.explains(ask, got.status, got.body.decode())
            return "" if is_explained else "a status that nothing explains"
        if ask.is_nonsense:
            return "a result for nonsense"
        may_stream = ask.api.streams or service.has_reshaped(ask.api)
        if may_stream and "transfer-encoding" in got.headers:
            whole = b"".join(streamed(model, ask.rows[0]))
            is_right = got.body == whole if got.is_complete else whole.startswith(got.body)
            return "" if is_right else "another stream"
        if not got.is_complete:
            problem = "half a response"
            has_ended = self.leaves or self._half_closes
            return "" if has_ended or service.explains(ask, got.status, problem) else problem
        try:
            results = ask.read(got.headers, got.body)
        except (ValueError, LookupError, TypeError):
            problem = "an unreadable response"
            return "" if service.explains(ask, got.status, problem) else problem
        is_right = results == [result_of(model, row) for row in ask.rows]
        return "" if is_right else "another result"
