"""What code of a service may raise, at every step of a batch: only the requests at fault get 500."""

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.workers.run_batch import Outlet, run_batch
from uncork_workers.definition.adapters import InvalidInput, Json
from uncork_workers.definition.adapters.requests import Request, RequestAdapter
from uncork_workers.definition.service import Service, api
from uncork_workers.process.children import Stopped
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.messages import Meta, Reply


class OwnError(BaseException):
    """Not an Exception."""


class Unspeakable(Exception):
    """Its text and its representation raise."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def grouped() -> BaseException:
    return BaseExceptionGroup("several", [ValueError("first"), asyncio.CancelledError()])


KINDS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad"),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "OwnError": OwnError,
    "BaseException": BaseException,
    "MemoryError": MemoryError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "RecursionError": RecursionError,
    "Unspeakable": Unspeakable,
    "BaseExceptionGroup": grouped,
}
EACH = pytest.mark.parametrize("kind", KINDS)


class Rows(RequestAdapter):
    """Rows of text: the body ``invalid`` gets 400, and the name of an exception raises it."""

    def handle_batch_request(self, requests: Sequence[Request]) -> list[str]:
        texts = [request.body.decode() for request in requests]
        for text in texts:
            if text in KINDS:
                raise KINDS[text]()
            if text == "invalid":
                raise InvalidInput("not a row")
            if text == "half":
                raise InvalidInput("got \ud800")
        return texts


class Column(list[Any]):
    """A column of results that raises while it is split into rows."""

    def __iter__(self) -> Iterator[Any]:
        raise KINDS[next(kind for kind in list.__iter__(self) if kind in KINDS)]()


class Raising(Service):
    @api(input=Json())
    def plain(self, items: list[Any]) -> list[Any]:
        for item in items:
            if item in KINDS:
                raise KINDS[item]()
        return items

    @api(input=Json())
    async def awaits(self, items: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return self.plain(items)

    @api(input=Json())
    async def awaits_task(self, items: list[Any]) -> list[Any]:
        async def one(item: Any) -> Any:
            return self.plain([item])[0]

        return list(await asyncio.gather(*map(one, items)))

    @api(input=Json())
    def splits(self, items: list[Any]) -> Any:
        return {"item": Column(items) if KINDS.keys() & {*items} else items}

    @api(input=Rows())
    def adapts(self, rows: list[str]) -> list[str]:
        return rows

    @api(input=Json(), policy="none")
    def streams(self, items: list[Any]) -> Iterator[Any]:
        yield "first"
        self.plain(items)

    @api(input=Json(), policy="none")
    async def streams_async(self, items: list[Any]) -> AsyncIterator[Any]:
        yield "first"
        await asyncio.sleep(0)
        self.plain(items)


def run(
    to: str, *texts: str, idempotent: bool = True, outlet: Outlet | None = None
) -> tuple[Reply, list[bytes]]:
    fields: dict[str, Any] = {"idempotent": idempotent}
    bodies = [f'"{text}"'.encode() for text in texts]
    if to == "adapts":
        bodies = [text.encode() for text in texts]
        fields |= {"forms": (RawForm(),), "metas": [Meta("text/plain")] * len(texts)}
    return run_batch(Raising(), to, *bodies, outlet=outlet, **fields)


@EACH
@pytest.mark.parametrize("to", ["plain", "awaits", "awaits_task", "splits", "adapts"])
def test_only_the_request_at_fault_gets_500(to: str, kind: str) -> None:
    reply, _ = run(to, "a", "b", kind, "c", "d")
    alone, _ = run(to, kind)

    assert (reply.statuses, alone.statuses) == ([200, 200, 500, 200, 200], [500])
    [report] = reply.exceptions
    assert report.error.removeprefix("Runtime") in (kind, "Error")
    assert report.requests == 1


@EACH
@pytest.mark.parametrize("to", ["streams", "streams_async"])
def test_a_stream_ends_with_500(to: str, kind: str) -> None:
    outlet = Outlet()

    reply, _ = run(to, kind, idempotent=False, outlet=outlet)

    assert reply.statuses == [500]
    assert [data for _, data in outlet.pieces] == [b"first"]


@EACH
def test_an_adapter_that_fails_for_one_request_spares_invalid_ones(kind: str) -> None:
    """Also if a failed batch may not run again: the handler has seen none of these."""
    reply, bodies = run("adapts", kind, "invalid", "a", idempotent=False)

    assert reply.statuses == [500, 400, 200]
    assert bodies[1:] == [b"not a row", b'"a"']
    assert reply.worked


def test_a_reason_that_quotes_half_of_a_character_is_told() -> None:
    """Otherwise it would fail all requests of a batch that may not run again."""
    reply, bodies = run("adapts", "a", "half", idempotent=False)

    assert (reply.statuses, bodies) == ([200, 400], [b'"a"', b"got \\ud800"])


class Refusing(RequestAdapter):
    """Has one exception for all invalid requests, which it returns or raises."""

    def __init__(self) -> None:
        self.refusal = InvalidInput("not a row")

    def handle_batch_request(self, requests: Sequence[Request]) -> list[Any]:
        texts = [request.body.decode() for request in requests]
        if "raise" in texts:
            raise self.refusal
        return [self.refusal if text == "return" else text for text in texts]


class Refused(Service):
    adapter = Refusing()

    @api(input=adapter)
    def predict(self, rows: list[str]) -> list[str]:
        return rows


@pytest.mark.parametrize("text", [b"return", b"raise"])
def test_an_exception_for_many_invalid_requests_keeps_no_batch(text: bytes) -> None:
    fields: dict[str, Any] = {"forms": (RawForm(),), "metas": [Meta("text/plain")] * 2}
    reply, bodies = run_batch(Refused(), "predict", b"a", text, **fields)

    assert (reply.statuses, bodies) == ([200, 400], [b'"a"', b"not a row"])
    assert Refused.adapter.refusal.__traceback__ is None


class Wrong(Service):
    @api(input=Json())
    def short(self, items: list[Any]) -> list[Any]:
        return items[:-1]

    @api(input=Json())
    def nothing(self, items: list[Any]) -> list[Any]:
        return [object() for _ in items]

    @api(input=Json())
    async def awaits(self, items: list[Any]) -> None:
        await asyncio.sleep(0)

    @api(input=Json(), policy="none")
    def streams(self, items: list[Any]) -> Iterator[Any]:
        yield "text"
        yield b"bytes"


@pytest.mark.parametrize("to", ["short", "nothing", "awaits", "streams"])
def test_an_error_about_results_names_the_handler(to: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its traceback has no line of the service."""
    reply, _ = run_batch(Wrong(), to, b"1", outlet=Outlet())

    line = getattr(Wrong, to).__code__.co_firstlineno
    [report] = reply.exceptions
    assert (report.error, report.place) == ("WrongResult", f"test_base_exceptions.py:{line}")
    assert report.message.endswith(f"\nhandler: Wrong.{to} ({__file__}, line {line})")
    assert f"\nhandler: Wrong.{to} ({__file__}, line {line})" in caplog.text


def test_an_error_of_the_handler_has_its_own_line(caplog: pytest.LogCaptureFixture) -> None:
    reply, _ = run("plain", "ValueError")

    assert reply.exceptions[0].message == "bad"
    assert "handler: " not in caplog.text


def test_the_report_of_a_group_names_the_first_exception() -> None:
    reply, _ = run("plain", "BaseExceptionGroup")

    assert reply.exceptions[0].message == "several (2 sub-exceptions)\nValueError: first"


class Stopping(Service):
    async def _await(self) -> None:
        raise Stopped

    @api(input=Json())
    def plain(self, items: list[Any]) -> list[Any]:
        raise Stopped

    @api(input=Json())
    async def awaits(self, items: list[Any]) -> list[Any]:
        """As if the signal arrived while another task runs."""
        task = asyncio.create_task(self._await())
        await asyncio.sleep(60)
        await task
        return items


@pytest.mark.parametrize("to", ["plain", "awaits"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_ends_the_process_is_no_failure_of_requests(to: str) -> None:
    with pytest.raises(Stopped):
        run_batch(Stopping(), to, b"1", b"2")


class Big:
    """Stands for the data of a batch."""


class Keeping(Service):
    def __init__(self) -> None:
        self.seen: list[weakref.ref[Big]] = []

    @api(input=Json())
    def plain(self, items: list[Any]) -> list[Any]:
        big = Big()
        self.seen.append(weakref.ref(big))
        if "bad" in items:
            try:
                raise KeyError("a cause")
            except KeyError as error:
                raise ValueError("bad") from error
        return items

    @api(input=Json())
    async def awaits(self, items: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return self.plain(items)

    @api(input=Json())
    def short(self, items: list[Any]) -> list[Any]:
        return [] if "bad" in items else self.plain(items)


@pytest.mark.parametrize("to", ["plain", "awaits", "short"])
@pytest.mark.parametrize("texts", [("bad",), ("a", "bad", "b"), ("bad",) * 64])
def test_a_failed_batch_is_not_kept(to: str, texts: Sequence[str], caplog: pytest.LogCaptureFixture) -> None:
    """Without the garbage collector: exceptions must not refer to frames that refer to them."""
    service = Keeping()
    logging.getLogger("uncork.worker").addFilter(deaf := lambda record: False)
    gc.disable()
    try:
        run_batch(service, to, *(f'"{text}"'.encode() for text in texts))
        kept = [ref() for ref in service.seen]
    finally:
        gc.enable()
        logging.getLogger("uncork.worker").removeFilter(deaf)

    assert kept == [None] * len(service.seen)


class Odd(RuntimeError):
    """Not even its attributes can be read."""

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise SystemExit

    def __setattr__(self, name: str, value: object) -> None:
        raise SystemExit


def test_an_exception_that_fails_when_it_is_looked_at_fails_its_request_only() -> None:
    class Raises(Service):
        @api(input=Json())
        def predict(self, rows: list[Any]) -> list[Any]:
            if 13 in rows:
                raise Odd
            return rows

    reply, answers = run_batch(Raises(), "predict", b"1", b"13", b"2")

    assert reply.statuses == [200, 500, 200]
    assert [answers[0], answers[2]] == [b"1", b"2"]
