"""The fuzzer of a running gRPC port."""

import asyncio
import re
from collections.abc import Sequence
from random import Random

from benchmarks.chaos.streams import connected
from benchmarks.fuzz.call_mutations import MutatedCall, mutated_call
from benchmarks.fuzz.fuzzer import HANDLER_FAILED, Fuzzer
from benchmarks.fuzz.seeds import CallSeed
from benchmarks.harness.grpc_wire import Answer, GrpcWire, WireFault, call_fields, listening, prefixed
from tests.gateway.grpc.http2.mutations import changed_frames, other_frames
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import ErrorCode
from uncork_gateway.grpc.statuses import Code

LOT = 25
"""Calls on one connection."""
_BROKEN_LOTS = 0.15
_OTHER_FRAMES = 0.1
# Then the client half-closes: a changed length may make the server wait for more.
_PATIENCE_S = 0.1
_NO_STATUS, _CLOSED = "reset", "closed"
_INPUT_ERRORS = frozenset(
    {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED}
)
_OF_TIMEOUT = frozenset({Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE})
_RULES_OF_GRPC = re.compile(
    "(this method|Watch) takes one message|the first byte of a message must be|a message is compressed, but"
    "|the stream ended after|cannot decompress the body|the compressed body"
)
"""Errors of clients that are INTERNAL."""
_LEAKS = re.compile(rb"internal error; error id|Traceback \(most|File \"")


class CallFuzzer(Fuzzer[CallSeed]):
    """Sends mutated calls, a lot on each connection."""

    what, lot, connections, bound_s = "call", LOT, 4, 10.0

    async def _send(self, numbers: Sequence[int]) -> None:
        """Send a lot of calls, and check that the server answers a valid one afterwards."""
        random = Random(f"{self._seed} lot {numbers[0]}")
        is_broken = random.random() < _BROKEN_LOTS
        try:
            faults = await (self._send_broken if is_broken else self._send_calls)(numbers, random)
        except OSError as error:
            faults = [f"the connection failed: {error!r}"]
        where = f"--grpc --first {numbers[0]} --requests {len(numbers)}"
        self.found.faults += [f"calls from number {numbers[0]} ({where}): {fault}" for fault in faults]
        await self._check_neighbour(numbers[0])

    def _mutated(self, number: int, wire: GrpcWire) -> MutatedCall:
        random = Random(f"{self._seed} {number}")
        return mutated_call(self._example.draw(random), random, wire)

    async def _send_calls(self, numbers: Sequence[int], random: Random) -> list[str]:
        """Send calls in valid frames, each of which must be answered by itself; returns the faults."""
        async with connected(self._port) as streams, listening(GrpcWire(streams)) as wire:
            calls = [self._mutated(number, wire) for number in numbers]
            right, whole = _whole(self._example.seeds[0], wire)
            wire.write(b"".join([*_interleaved([call.written for call in calls], random), whole]))
            expected = [wire.answers[call.number] for call in calls if call.ends] + [wire.answers[right]]
            await _all_ended(expected, within_s=self.bound_s)
            faults = [self._judged(call, wire.answers[call.number]) for call in calls]
            faults.append(self._compared("the valid call between them", wire.answers[right]))
            if wire.goaway is not None or wire.closed.is_set():
                faults.append(f"the connection ended: {wire.goaway}")
            return [fault for fault in [*faults, wire.fault] if fault]

    async def _send_broken(self, numbers: Sequence[int], random: Random) -> list[str]:
        """Send calls in mutated frames; the server must answer or end the connection. Returns the faults."""
        async with (
            connected(self._port) as streams,
            listening(GrpcWire(streams, any_stream=True)) as wire,
        ):
            calls = [self._mutated(number, wire) for number in numbers]
            sent = list(_interleaved([call.written for call in calls], random))
            for call in calls:
                if random.random() < _OTHER_FRAMES:
                    sent.insert(random.randrange(len(sent)), random.choice(other_frames(call.number, random)))
            wire.write(changed_frames(sent, random))
            await _all_ended([wire.answers[call.number] for call in calls if call.ends], within_s=_PATIENCE_S)
            wire.half_close()
            try:
                async with asyncio.timeout(self.bound_s):
                    await wire.closed.wait()
            except TimeoutError:
                return [f"the connection is open {self.bound_s:g} s after its end"]
            for call in calls:
                answer = wire.answers[call.number]
                self._count(answer)
                if _LEAKS.search(answer.data + answer.text.encode()):
                    return [f"{_called(call)}: {_described(answer)}"]
            return [wire.fault] if wire.fault else []

    def _count(self, answer: Answer) -> None:
        status = answer.status
        code = f"HTTP {answer.http_status}" if answer.http_status not in (0, 200) else _NO_STATUS
        if answer.reset is None and not answer.is_complete:
            code = _CLOSED
        self.found.statuses[code if status is None else Code(status).name] += 1

    def _judged(self, call: MutatedCall, answer: Answer) -> str:
        """Count an answer; return what is wrong with it, or ""."""
        self._count(answer)
        fault = _fault_of(call, answer)
        return (
            f"{_called(call)}: {fault}: {_described(answer)}: {b''.join(call.written)[:600]!r}"
            if fault
            else ""
        )

    def _compared(self, which: str, answer: Answer) -> str:
        """Return what is wrong with the answer to a valid call, or ""."""
        content, said = _content(answer)
        return "" if content == self._expected else f"{which} got {said}"

    async def _ask(self) -> tuple[object, str]:
        """Make a valid call on a connection of its own."""
        try:
            async with connected(self._port) as streams, listening(GrpcWire(streams)) as wire:
                number, whole = _whole(self._example.seeds[0], wire)
                wire.write(whole)
                await _all_ended([wire.answers[number]], within_s=self.bound_s)
                return _content(wire.answers[number])
        except OSError as error:
            return None, repr(error)


def _content(answer: Answer) -> tuple[object, str]:
    """Return the messages of an answer, None if it is not OK, and its description."""
    try:
        return answer.messages if answer.status == Code.OK else None, _described(answer)
    except WireFault as fault:
        return None, str(fault)


async def _all_ended(answers: Sequence[Answer], *, within_s: float) -> None:
    """Wait until the answers have ended, or until the time is over."""
    try:
        async with asyncio.timeout(within_s):
            for answer in answers:
                await answer.ended.wait()
    except TimeoutError:
        pass


def _whole(seed: CallSeed, wire: GrpcWire) -> tuple[int, bytes]:
    """Return the stream and the frames of a valid call."""
    data = b"".join(prefixed(message.SerializeToString()) for message in seed.messages)
    number, opened = wire.head(call_fields(seed.path))
    return number, opened + frames.frame(frames.DATA, frames.END_STREAM, number, data)


def _interleaved(calls: Sequence[Sequence[bytes]], random: Random) -> list[bytes]:
    """Return the frames of all calls in a random order, which keeps that of each call and of the heads."""
    opened, waiting = [], [list(call) for call in calls]
    begun: list[list[bytes]] = []
    while waiting or begun:
        if waiting and (not begun or random.random() < 0.5):
            call = waiting.pop(0)
        else:
            call = begun.pop(random.randrange(len(begun)))
        opened.append(call.pop(0))
        if call:
            begun.append(call)
    return opened


def _fault_of(call: MutatedCall, answer: Answer) -> str:
    """Return what is wrong with the answer to a mutated call in valid frames, or ""."""
    if answer.reset is None and not answer.is_complete:
        return "no answer" if call.ends else ""
    if answer.reset is not None:
        is_expected = call.has_odd_head and answer.reset == ErrorCode.PROTOCOL_ERROR
        return "" if is_expected or not call.ends else "reset"
    if answer.http_status != 200:
        return "" if call.has_odd_head and answer.http_status in (405, 415) else "an HTTP status"
    try:
        data = b"".join(answer.messages) + answer.text.encode()
    except WireFault as fault:
        return str(fault)
    if _LEAKS.search(data):
        return "an error of the gateway"
    return "" if answer.status is None or _is_justified(call, answer) else "a status without a cause"


def _is_justified(call: MutatedCall, answer: Answer) -> bool:
    if answer.status in _INPUT_ERRORS:
        return True
    if answer.status in _OF_TIMEOUT:
        return call.has_odd_head
    text = answer.text
    return answer.status == Code.INTERNAL and bool(_RULES_OF_GRPC.search(text) or HANDLER_FAILED in text)


def _called(call: MutatedCall) -> str:
    return f"stream {call.number} of {call.path.decode()}"


def _described(answer: Answer) -> str:
    if answer.reset is not None:
        return f"RST_STREAM {answer.reset}"
    status = answer.status
    name = "no status" if status is None else Code(status).name
    return f"HTTP {answer.http_status}, {name}, {answer.text[:300]!r}"
