"""Clients over gRPC: several calls on a connection, of which some are cancelled, slow, or not read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h2.config
import h2.connection
from h2.settings import SettingCodes

from tests.gateway.grpc.bodies import PredictResponse
from tests.gateway.grpc.http2.peer import Answer, Peer, gzipped, headers, message
from tests.simulation.clients import Caller
from tests.simulation.requests import (
    Ask,
    infer_request,
    inferred,
    predict_request,
    predicted,
    some_ask,
    unprefixed,
)
from tests.simulation.workers import result_of, streamed
from uncork_gateway.grpc import messages
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import DEFAULT_WINDOW_BYTES, ErrorCode
from uncork_gateway.grpc.infer_stream import FINAL
from uncork_gateway.grpc.protocols import predict

if TYPE_CHECKING:
    from tests.simulation.schedule import GatewaySchedule

_SERVICE = b"/inference.GRPCInferenceService/"
_Response = messages.message("inference.ModelInferResponse")
_StreamResponse = messages.message("inference.ModelStreamInferResponse")
_MOST_CALLS = 5
# The codes of statuses over HTTP.
_CODES = {400: 3, 404: 5, 408: 4, 413: 8, 415: 3, 422: 3, 500: 13, 501: 12, 502: 13, 503: 14, 504: 4}


@dataclass(eq=False)
class Call:
    """One call, with the number of its stream; in ModelStreamInfer, all requests have ids.

    Attributes:
        predicts: True if it is TensorFlow Serving's Predict.
        is_cancelled: True once the client has cancelled it; the gateway knows since ``cancelled_at``.
    """

    client: GrpcClient = field(repr=False)
    is_stream: bool
    predicts: bool = False
    number: int = 0
    asks: list[Ask] = field(default_factory=list)
    is_cancelled: bool = False
    cancelled_at: float | None = None

    @property
    def has_left(self) -> bool:
        """True if the gateway has had time to learn that the client has left."""
        at = self.cancelled_at
        return self.client.has_left or (at is not None and at < self.client.schedule.loop.now())

    def cancelled(self) -> None:
        self.cancelled_at = self.client.schedule.loop.now()

    @property
    def answer(self) -> Answer:
        return self.client.answer(self.number)

    @property
    def is_open(self) -> bool:
        is_over = self.answer.is_ended or self.answer.reset is not None or self.is_cancelled
        return not (is_over or self.client.is_closed or self.client.leaves)


class GrpcClient(Caller, Peer):
    """Calls ModelInfer, ModelStreamInfer and Predict on one connection, and checks the responses."""

    schedule: GatewaySchedule

    def __init__(self, schedule: GatewaySchedule, name: str) -> None:
        Caller.__init__(self, schedule, name)
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self.answers: dict[int, Answer] = {}
        self.goaway = None
        self.opens_windows = True
        self._data = b""

    async def run(self, start_s: float | None = None) -> None:
        """Connect, call, and check what comes back."""
        await self.connect(start_s, grpc=True)
        self.h2.initiate_connection()
        tasks = [self._call(at) for at in range(_MOST_CALLS) if not at or self.has(at)]
        if self.is_odd("closes_windows", 0.2):
            self._set_window(self._random.choice([0, 10, 200]))
            tasks.append(self._open_windows())
        if self.is_odd("vanishes", 0.1) or self.schedule.fails(f"{self.name}.is_cut_off", 0.05):
            tasks.append(self._vanish())
        self.sync()
        await asyncio.gather(*tasks)
        self.leaves = True
        self.end.close()

    def _set_window(self, size: int) -> None:
        self.is_slow, self.opens_windows = True, size == DEFAULT_WINDOW_BYTES
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})

    async def _open_windows(self) -> None:
        await asyncio.sleep(self._random.choice([0.05, 3.0, 60.0]))
        self._set_window(DEFAULT_WINDOW_BYTES)
        self.sync()

    async def _vanish(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.5))
        self.leaves = True
        self._random.choice([self.end.abort, self.end.close])()

    # Calls

    async def _call(self, at: int) -> None:
        name, random = f"{self.name}.{at}", self.schedule.draws.random(f"{self.name}.{at}!")
        await asyncio.sleep(random.choice([0.0, 0.0, 0.05, 1.0]))
        if self.is_closed or self.goaway is not None:
            return
        target = self.schedule.target(random)
        call = Call(self, target[1].streams or random.random() < 0.4)
        # Several outputs of a Predict have another order in each process.
        may_predict = not (call.is_stream or target[1].task)
        call.predicts = may_predict and self.schedule.draws.happens(f"{name}.predicts", 0.3)
        sent = []
        for place in range(random.choice([1, 1, 3]) if call.is_stream else 1):
            service, api = self.schedule.target(random) if place else target
            many = not (api.streams or api.input["kind"] == "raw")
            ask = some_ask(self.schedule, call, f"{name}.{place}", random, (service, api), many=many)
            ask.id = f"{place}" if call.is_stream else "" if call.predicts else ask.id
            call.asks.append(ask)
            sent.append(self._message(call, ask, f"{name}.{place}", random))
        more = [(b"x-tenant", b"%d" % random.randrange(3)), (b"x-request-id", name.encode())]
        timeout_s = max([ask.timeout_s or 0.0 for ask in call.asks])
        if timeout_s:
            more.append((b"grpc-timeout", b"%dm" % (timeout_s * 1000)))
        for ask in call.asks:
            ask.timeout_s = timeout_s or None
        if all(ask.api.classes for ask in call.asks) and random.random() < 0.5:
            more.append((b"x-request-class", b"bulk"))
        is_zipped = random.random() < 0.3
        if is_zipped:
            more.append((b"grpc-encoding", b"gzip"))
        call.number = self.h2.get_next_available_stream_id()
        path = _SERVICE + (b"ModelStreamInfer" if call.is_stream else b"ModelInfer")
        path = predict.METHOD if call.predicts else path
        self.h2.send_headers(call.number, headers(path, *more))
        await self._send(call, name, b"".join(map(gzipped if is_zipped else message, sent)), random)
        await self.until(lambda: not call.is_open)
        if problem := self._problem(call, name):
            self.schedule.violated(f"{name}: {problem}: {call}, {call.answer}, {self.goaway}")

    def _message(self, call: Call, ask: Ask, name: str, random: Random) -> bytes:
        body = (predict_request if call.predicts else infer_request)(ask, is_raw=random.random() < 0.6)
        if ask.api.input["kind"] == "raw":
            ask.faults.add(400)
        if self.schedule.is_odd(f"{name}.bad_message", 0.05):
            body, ask.id = body[:-1], ""
            ask.faults.add(400)
        if len(body) > self.schedule.settings.max_body_bytes:
            ask.faults.add(413)
        return body

    async def _send(self, call: Call, name: str, data: bytes, random: Random) -> None:
        """Send messages, whole or in pieces; the client may cancel on the way or soon after."""
        cancels, is_slow = (self.schedule.is_odd(f"{name}.{what}", 0.15) for what in ("cancels", "is_slow"))
        self.is_slow |= is_slow
        pieces = self.pieces(data, 4 if is_slow else random.choice([1, 1, 3]))
        last = random.randrange(len(pieces)) if cancels else len(pieces) - 1
        for at, piece in enumerate(pieces[: last + 1]):
            if call.is_open:
                self.h2.send_data(call.number, piece, end_stream=at == last and not cancels)
                self.sync()
                await asyncio.sleep(random.choice([0.01, 2.0, 15.0]) if is_slow else 0.0)
        if cancels:
            await asyncio.sleep(random.choice([0.0, 0.001, 0.02, 0.3]))
            if call.is_open:
                call.is_cancelled = True
                self.h2.reset_stream(call.number, ErrorCode.CANCEL)
                self.sync()
                self.end.when_arrived(call.cancelled)

    # What comes back

    def sync(self) -> None:
        if data := self.h2.data_to_send():
            self.end.write(data)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= (size := frames.FRAME_HEAD_BYTES + int.from_bytes(self._data[:3], "big")):
            frame, self._data = self._data[:size], self._data[size:]
            if frame[3] == frames.GOAWAY:  # the library would end with it
                last, code = (int.from_bytes(frame[at : at + 4], "big") for at in (9, 13))
                self.goaway = code, last, frame[17:].decode()
                continue
            for event in self.h2.receive_data(frame):
                self._handle(event)
        self.sync()
        self.changed.set()

    # Checks

    def _problem(self, call: Call, name: str) -> str:
        """Describe what is wrong with a response; empty if it is right."""
        answer = call.answer
        said = answer.trailers or (answer.head if answer.is_ended else {})
        if not said:
            is_given_up = answer.reset == ErrorCode.ENHANCE_YOUR_CALM and self.is_slow
            has_left = call.is_cancelled or self.leaves
            return "" if is_given_up or has_left or self._is_cut_off(call) else "no response"
        if said[b"x-request-id"].decode() != name:
            return "the response to another call"
        if not answer.status:
            self.schedule.statuses[200] += 1
            return self._problem_in_stream(call) if call.is_stream else self._problem_in_one(call)
        is_slow = self.is_slow and answer.status == _CODES[408]
        text = unquote(answer.text)
        if is_slow or any(self._explains(ask, answer.status, text) for ask in call.asks):
            return ""
        return "a status that nothing explains"

    def _is_cut_off(self, call: Call) -> bool:
        """Return whether the gateway has said that it does not answer a call, or ends old connections."""
        code, last, _ = self.goaway or (None, 0, "")
        return code == ErrorCode.NO_ERROR and (call.number > last or self.schedule.cuts_calls_off)

    def _explains(self, ask: Ask, code: int | None, text: str) -> bool:
        """Return whether something explains an error; in a stream, errors have no code."""
        statuses = [status for status, each in _CODES.items() if code in (None, each)]
        found = [status for status in statuses if ask.service.explains(ask, status, text)]
        self.schedule.statuses.update(found[:1])
        return bool(found)

    def _problem_in_one(self, call: Call) -> str:
        [message] = call.answer.messages
        if call.predicts:
            return self._wrong(call.asks[0], "", predicted(PredictResponse.FromString(message)))
        response = _Response.FromString(message)
        return self._wrong(call.asks[0], response.id, inferred(response))

    def _problem_in_stream(self, call: Call) -> str:
        """Each request gets one response, in order, or a stream of pieces."""
        waiting, newest = dict(enumerate(call.asks)), -1
        pieces: defaultdict[int, bytes] = defaultdict(bytes)
        for said in map(_StreamResponse.FromString, call.answer.messages):
            response = said.infer_response
            unreadable = [at for at, ask in waiting.items() if not ask.id]
            at = int(response.id) if response.id else next(iter(unreadable), -1)
            ask = waiting.pop(at, None)
            if ask is None:
                return f"a response to none of its requests: {said}"
            is_piece = FINAL in response.parameters
            if is_piece and not response.parameters[FINAL].bool_param:
                pieces[at] += unprefixed(response.raw_output_contents[0])[0].encode()
                waiting[at] = ask
                continue
            if problem := self._wrong_in_stream(ask, said, pieces[at] if is_piece else None):
                return problem
            if not (ask.api.streams or ask.service.has_reshaped(ask.api)):
                if at < newest:
                    return "responses in another order"
                newest = at
        return f"no response to {waiting}" if waiting else ""

    def _wrong_in_stream(self, ask: Ask, said: Any, stream: bytes | None) -> str:
        if said.error_message:
            return "" if self._explains(ask, None, said.error_message) else f"an error: {said.error_message}"
        if stream is None:
            return self._wrong(ask, said.infer_response.id, inferred(said.infer_response))
        return "" if stream == b"".join(streamed(ask.model, ask.rows[0])) else f"another stream: {stream!r}"

    def _wrong(self, ask: Ask, response_id: str, results: list[Any]) -> str:
        if ask.is_nonsense:
            return "a result for nonsense"
        is_right = results == [result_of(ask.model, row) for row in ask.rows]
        return "" if response_id == ask.id and is_right else "another result"
