"""Worker processes that do not exist: they speak frames, take time, fail and die."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tests.simulation.network import End
from uncork_workers.definition.adapters import Json
from uncork_workers.process.batches.merging import BatchRequests, merge
from uncork_workers.supervision.launcher import WorkerProcess
from uncork_workers.wire.forms import RawForm, TensorForm, expand_forms
from uncork_workers.wire.frames import FrameDecoder, encode_frame, split_payload
from uncork_workers.wire.handshake import Application
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Failed,
    Goodbye,
    Hello,
    Leaving,
    Message,
    Piece,
    Ping,
    Pong,
    Ready,
    Reply,
    TakeFile,
    WarmUp,
)
from uncork_workers.wire.schema import ApiDescription
from uncork_workers.wire.tensors import prefixed

if TYPE_CHECKING:
    from tests.simulation.running import RunningService

_JSON = Json()
_TEXT = "text/plain"
_STREAMED_PIECES = 4
BAD_ROW = "the row is bad"
Row = dict[str, Any]


def values_of(row: Row) -> list[int]:
    """A row of an array."""
    return [row["n"], ord(row["g"]), row.get("status", 200), int(row.get("kills", False))]


def row_of_values(values: Sequence[int]) -> Row:
    number, group, status, kills = values
    return {"n": number, "g": chr(group), "status": status, "kills": bool(kills)}


def rows_of(batch: Batch, bodies: Sequence[bytes]) -> list[list[Row]]:
    """Return the rows of each request of a batch."""
    forms = expand_forms(batch.forms, len(bodies))
    if any(isinstance(form, RawForm) for form in forms):
        return [[_row_of_raw(body)] for body in bodies]
    rows = iter(merge(_JSON, BatchRequests(bodies, batch.rows, forms)))
    return [
        [row if isinstance(row, dict) else row_of_values(row) for row in itertools.islice(rows, count)]
        for count in batch.rows
    ]


def _row_of_raw(body: bytes) -> Row:
    try:
        row = json.loads(body)
    except ValueError:
        row = None
    # Clients may send a body that is meant for other code.
    return row if isinstance(row, dict) else {"n": 0, "g": "", "status": 400}


def result_of(model: str, row: Row) -> str:
    """The model of the simulation. No other row of any API has the same result."""
    return f"{model} {row['n']} {row['g']}"


def streamed(model: str, row: Row) -> list[bytes]:
    """The pieces of a streamed response."""
    return [b"%b %d\n" % (result_of(model, row).encode(), number) for number in range(_STREAMED_PIECES)]


def status_of(rows: Sequence[Row]) -> int:
    """The status that the service answers a request with: rows can be bad, or make the handler fail."""
    return max([int(row.get("status", 200)) for row in rows])


class Processes:
    """Launches workers: the part of the supervisor that this simulation replaces."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self._launches = 0
        self.running: dict[int, WorkerProcess] = {}
        self.workers: dict[int, Worker] = {}

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        self._launches += 1
        launch = self._launches
        if self._service.schedule.fails(f"{self._service.prefix}w{launch}.no_start", 0.03):
            raise OSError("no process left")
        process = WorkerProcess(index, launch, asyncio.get_running_loop().create_future())
        self.running[launch] = process
        self.workers[launch] = Worker(self._service, index, launch, standby=standby, process=process)
        return process

    def kill(self, launch: int) -> None:
        if launch in self.running:
            self.workers[launch].die("was killed")


class Worker:
    """One process, with one connection to the gateway.

    ``launch`` is None for one that the supervisor has not started; it has no ``process`` either.
    """

    def __init__(
        self,
        service: RunningService,
        index: int,
        launch: int | None,
        *,
        standby: bool,
        process: WorkerProcess | None,
    ) -> None:
        self._of, self._schedule, self._loop = service, service.schedule, service.schedule.loop
        self._index, self._launch, self._standby, self._process = index, launch, standby, process
        self.name = service.prefix + (f"w{launch}" if launch is not None else f"x{index}")
        self._random = self._schedule.draws.random(self.name)
        self._service = service.description
        self._apis = {api.name: api for api in self._service.apis}
        self._in_order = all(api.concurrency == 1 for api in self._service.apis)
        self._slowness = self._random.choice([0.2, 1.0, 1.0, 5.0])
        self._decoder = FrameDecoder()
        self._end: End
        self._queue: list[tuple[Batch, list[list[Row]]]] = []
        self._running: dict[int, Batch] = {}
        self._departed: dict[int, set[int]] = {}
        self._served = 0
        self._is_dead = self._hangs = False
        self._loop.call_later(self._random.choice([0.0, 0.05, 0.5]), self._connect)

    def die(self, how: str, *, lacked_memory: bool = False) -> None:
        """End at once; what has not arrived at the gateway never does."""
        if self._is_dead:
            return
        self._is_dead = True
        if hasattr(self, "_end"):
            self._end.abort()
        if self._process is not None and self._launch is not None:
            self._process.lacked_memory = lacked_memory
            del self._of.processes.running[self._launch]
            self._process.ended.set_result(how)

    def _later(self, seconds: float, does: Any, *args: Any) -> None:
        self._loop.call_later(seconds, lambda: None if self._is_dead or self._hangs else does(*args))

    def _fault(self, name: str, probability: float) -> bool:
        return self._schedule.fails(f"{self.name}.{name}", probability)

    # Its start

    def _connect(self) -> None:
        if self._is_dead:
            return
        if self._fault("dies_early", 0.03):
            return self.die("died")
        pool = self._of.served.pool
        network = self._schedule.network
        if self._launch is not None:
            made = self._loop.servers[self._of.standby_socket if self._standby else self._of.socket]()
            self._end = network.connect(self.name, made, self, self._random)
        else:
            self._end = network.connect(self.name, _Accepted(), self, self._random)
            said = Application(nonce=b"", proof=b"", protocol=1, version="", instance=self.name)
            self._index = pool.admit(self._end.peer, said)
        hello = Hello(index=self._index, launch=self._launch, service=self._service, host=self._host)
        self._send(hello)
        if self._fault("fails", 0.03):
            self._send(Failed(self._index, "setup", "no model"))
            return self._later(0.1, self.die, "exited")
        self._send(WarmUp(self._service.apis[0].name, 1))
        self._later(self._random.choice([0.0, 0.1, 1.0]), self._send, Ready())
        if self._fault("leaves", 0.05):
            self._later(self._random.uniform(0, 3), self._send, Leaving())

    @property
    def _host(self) -> str:
        return "" if self._launch is not None else self.name

    def _send(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        self._end.write(encode_frame(message, bodies))

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        for message, payload in [] if self._hangs or self._is_dead else self._decoder.feed(data):
            match message:
                case Batch():
                    self._take(message, payload)
                case Cancel(batch, requests):
                    self._departed.setdefault(batch, set()).update(requests)
                case Ping():
                    self._send(Pong())
                case Goodbye() | TakeFile():
                    pass
                case _:
                    self._schedule.violated(f"{self.name} got {message}")

    def eof_received(self) -> None:
        self._later(0.01, self.die, "exited")

    def connection_lost(self, exc: Exception | None) -> None:
        self._loop.call_later(0.01, self.die, "exited")

    def pause_writing(self) -> None:
        """A worker waits; here its frames do."""

    resume_writing = pause_writing

    # Batches

    def _take(self, batch: Batch, payload: bytes) -> None:
        requests = rows_of(batch, split_payload(payload, batch.lengths))
        self._queue.append((batch, requests))
        if self._in_order and len(self._queue) + len(self._running) > 2:
            self._schedule.violated(f"{self.name} has {[*self._running]} and {len(self._queue)} more batches")
        self._begin_next()

    def _begin_next(self) -> None:
        while self._queue and not (self._in_order and self._running):
            batch, requests = self._queue.pop(0)
            self._running[batch.batch] = batch
            self._begin(batch, requests)

    def _begin(self, batch: Batch, requests: list[list[Row]]) -> None:
        self._served += 1
        of_batch = f"b{self._served}."
        self._of.begins(batch, requests)
        seconds = self._slowness * (0.002 + 0.001 * sum(batch.rows)) * self._random.uniform(0.8, 1.2)
        if self._fault(f"{of_batch}slow", 0.02):
            seconds += self._random.choice([0.5, 3.0])
        if self._fault(f"{of_batch}hangs", 0.01):
            self._hangs = True
        elif self._fault(f"{of_batch}dies", 0.03):
            lacks = self._fault(f"{of_batch}lacks_memory", 0.3)
            self._later(seconds / 2, lambda: self.die("died", lacked_memory=lacks))
        elif any(row.get("kills") for rows in requests for row in rows):
            self._later(seconds / 2, self.die, "died")
        elif self._apis[batch.api].streams:
            self._later(seconds, self._stream, batch, requests[0][0], 0)
        else:
            self._later(seconds, self._finish, batch, requests, of_batch, seconds)

    def _finish(self, batch: Batch, requests: list[list[Row]], of_batch: str, seconds: float) -> None:
        statuses, api = list(map(status_of, requests)), self._apis[batch.api]
        results = [[result_of(self._of.model_of(api), row) for row in rows] for rows in requests]
        are_tensors = [wanted == "tensors" and not api.task for wanted in batch.raw or [""] * len(requests)]
        bodies = [
            (_written(some, api, as_tensor=as_tensor) if status == 200 else BAD_ROW.encode())
            for status, some, as_tensor in zip(statuses, results, are_tensors, strict=True)
        ]
        reply = Reply(
            batch=batch.batch,
            worked=max(statuses) == 200,
            seconds=seconds,
            statuses=statuses,
            lengths=list(map(len, bodies)),
            chunks=[(sum(batch.costs or batch.rows), seconds)] if max(statuses) == 200 else [],
            cancelled=batch.batch in self._departed,
            forms=tuple([TensorForm("BYTES", ()) if as_tensor else None for as_tensor in are_tensors]),
        )
        if api.input["kind"] == "raw":
            types = [_TEXT if status == 200 else "" for status in statuses]
            reply = replace(reply, content_types=types, headers=[[("x-of", api.name)] for _ in requests])
        if self._fault(f"{of_batch}runs_out_of_memory", 0.03):
            limit = max(1.0, sum(batch.costs or batch.rows) // 2)
            reply = replace(reply, limit=limit, memory_failures=1)
        frame = encode_frame(reply, bodies)
        if self._fault(f"{of_batch}dies_in_reply", 0.02):
            self._end.write(frame[: self._random.randrange(len(frame))])
            self._hangs = True
            self._loop.call_later(0.05, self.die, "died")
            return
        if self._fault(f"{of_batch}sends_garbage", 0.01):
            frame = encode_frame(Reply(batch.batch + 1000, True, 0.1, [], [], []))
        self._end.write(frame)
        self._ended(batch)

    def _stream(self, batch: Batch, row: Row, number: int) -> None:
        pieces = streamed(self._of.model_of(self._apis[batch.api]), row)
        status = status_of([row])
        if status == 200 and number < len(pieces) and not self._departed.get(batch.batch):
            head = None if number else AnswerHead(200, _TEXT)
            self._send(Piece(batch.batch, head), [pieces[number]])
            if number == 1 and self._fault(f"b{self._served}.dies_in_stream", 0.1):
                return self._later(0.05, self.die, "died")
            return self._later(self._slowness * 0.01, self._stream, batch, row, number + 1)
        body = b"" if status == 200 else BAD_ROW.encode()
        self._send(Reply(batch.batch, status == 200, 0.01, [status], [len(body)], []), [body])
        self._ended(batch)

    def _ended(self, batch: Batch) -> None:
        del self._running[batch.batch]
        self._begin_next()


def _written(results: Sequence[str], api: ApiDescription, *, as_tensor: bool) -> bytes:
    if as_tensor:
        return prefixed([result.encode() for result in results])
    if api.input["kind"] == "raw":
        return results[0].encode()
    rows = [{"embedding": result, "tokens": 1} if api.task else result for result in results]
    return json.dumps(rows)[1:-1].encode()


class _Accepted:
    """The worker port before it has admitted a worker."""

    def connection_made(self, transport: End) -> None:
        pass
