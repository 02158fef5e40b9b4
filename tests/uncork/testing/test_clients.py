"""Tests of services with ``uncork.testing``: what a service's author sees of it."""

import asyncio
import itertools
import logging
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.e2e.server import eventually
from tests.loops import HANG_S
from uncork import DefinitionError, Service, api, context
from uncork.adapters import Json, NdArray
from uncork.testing import Client, async_client, client


class Digits(Service):
    set_up = 0
    torn_down = 0

    def setup(self) -> None:
        type(self).set_up += 1
        self.thread = threading.current_thread()

    def teardown(self) -> None:
        type(self).torn_down += 1

    @api(input=NdArray(dtype="float32", shape=(2,)), mb_max_batch_size=100)
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert threading.current_thread() is self.thread
        sums: np.ndarray[Any, Any] = rows.sum(axis=1)
        return sums

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        """Each item, unless there is one among them that must fail."""
        for item in items:
            if item == "raise":
                raise KeyError("the culprit")
            if item == "exit":
                sys.exit("left")
            if item == "stop":
                raise StopIteration
            if item == "interrupt":
                raise KeyboardInterrupt("as in a process that is killed")
        return [] if "short" in items else items

    @api(input=Json(), timeout=0.05, mb_max_latency=60_000)
    def wait(self, items: list[Any]) -> list[Any]:
        """Wait until the test lets go."""
        for item in items:
            assert _gates[item].wait(HANG_S)
        return items

    @api(input=Json(), policy="fixed:20000:8", mb_max_latency=60_000)
    def held(self, items: list[Any]) -> list[Any]:
        """Held until there are eight; how many there are, for each."""
        return [len(items)] * len(items)


def answered(api: str, count: int) -> str:
    """The line of the metrics after as many good answers."""
    labels = f'api="{api}",protocol="http",service="digits",status="200"'
    return f"uncork_requests_total{{{labels}}} {count}.0"


_ONE_IS_HELD = 'uncork_queue_rows{api="held",service="digits"} 1.0'
_gates: dict[str, threading.Event] = {}


@pytest.fixture
def digits() -> Iterator[Client]:
    Digits.set_up = 0
    with client(Digits) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a worker's thread behind, or something in the loggers."""
    before = threading.enumerate()
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name.startswith("uncork ")]
    assert not logging.getLogger("uncork.worker").filters
    assert not logging.getLogger("uncork.gateway").filters


def is_ready(c: Client) -> bool:
    return c.get("/readyz").status_code == 200


def test_a_request_is_answered(digits: Client) -> None:
    """By an httpx client, with the headers of a batch."""
    reply = digits.post("/predict", json=[1, 2])

    assert isinstance(digits, httpx.Client)
    assert (reply.status_code, reply.json()) == (200, 3)
    assert reply.headers["x-batch-size"] == "1"
    assert "batch;dur=" in reply.headers["server-timing"]


def test_requests_that_are_sent_together_share_a_batch(digits: Client) -> None:
    """One of them that is wrong fails alone."""
    replies = digits.post_all("/predict", json=[*([n, n] for n in range(60)), [3, "x"]])
    *good, bad = replies

    assert [reply.json() for reply in good] == [2 * n for n in range(60)]
    assert {reply.headers["x-batch-size"] for reply in good} == {"61"}
    assert len({reply.headers["x-batch-id"] for reply in good}) == 1
    assert (bad.status_code, bad.headers["content-type"]) == (400, "application/problem+json")


def test_batches_obey_the_limits_of_the_api() -> None:
    """Those of ``@api``, or the client's own."""
    with client(Digits, mb_max_batch_size=4) as c:
        sizes = [reply.headers["x-batch-size"] for reply in c.post_all("/predict", json=[[0, 0]] * 6)]
    with client(Digits, policy="none") as c:
        alone = [reply.headers["x-batch-size"] for reply in c.post_all("/predict", json=[[0, 0]] * 3)]

    assert sorted(sizes) == ["2", "2", "4", "4", "4", "4"]
    assert alone == ["1"] * 3


def test_threads_share_batches(digits: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: digits.post("/held", json=n), range(8)))

    assert [reply.json() for reply in replies] == [8] * 8
    assert {reply.headers["x-batch-size"] for reply in replies} == {"8"}


def test_setup_and_teardown_are_called_once() -> None:
    """In the thread that calls the handlers, which ``predict`` checks."""
    Digits.set_up = Digits.torn_down = 0
    with client(Digits) as c:
        for _ in range(3):
            c.post("/predict", json=[1, 2]).raise_for_status()
        assert (Digits.set_up, Digits.torn_down) == (1, 0)

    assert (Digits.set_up, Digits.torn_down) == (1, 1)


def test_other_routes_are_there(digits: Client) -> None:
    rows = [[1, 2], [3, 4]]
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": rows}
    v1 = digits.post("/v1/models/digits:predict", json={"instances": rows})
    v2 = digits.post("/v2/models/digits/infer", json={"inputs": [tensor]})

    assert v1.json()["predictions"] == [3, 7]
    assert v2.json()["outputs"][0]["data"] == [3, 7]
    assert digits.get("/v2/models/digits").json()["name"] == "digits"
    assert digits.get("/readyz").text == "ready\n"
    assert answered("predict", 2) in digits.get("/metrics").text


def test_bodies_of_any_kind_are_sent(digits: Client) -> None:
    headers = {"content-type": "application/json"}
    as_bytes = digits.post_all("/echo", content=[b"1", b'"two"'], headers=headers)
    in_pieces = digits.post("/echo", content=iter([b'"' + b"x" * 100_000, b'y"']), headers=headers)
    requests = [digits.build_request("POST", "/echo", json=1), digits.build_request("GET", "/livez")]

    assert [reply.json() for reply in as_bytes] == [1, "two"]
    assert in_pieces.json() == "x" * 100_000 + "y"
    assert [reply.text for reply in digits.send_all(requests)] == ["1", "alive\n"]
    with pytest.raises(TypeError, match="either json or content"):
        digits.post_all("/echo")


def test_a_connection_that_closes_is_replaced(digits: Client) -> None:
    """Whether the client asked for that, or a request was refused before it was read."""
    long = digits.post("/echo", headers={"x": "y" * 70_000}, json=1)
    assert (long.status_code, long.headers["connection"]) == (431, "close")
    assert digits.get("/livez", headers={"connection": "close"}).status_code == 200
    assert digits.post("/echo", json=1).json() == 1


def test_what_a_handler_raises_is_raised_by_the_request(digits: Client) -> None:
    for _ in range(2):
        with pytest.raises(KeyError, match="the culprit") as caught:
            digits.post("/echo", json="raise")
        frames = traceback.extract_tb(caught.tb)
        assert (frames[0].name, frames[-1].name) == (
            "test_what_a_handler_raises_is_raised_by_the_request",
            "echo",
        )

    assert digits.post("/echo", json="next").json() == "next"


def test_a_batch_that_fails_as_a_whole_has_one_traceback() -> None:
    with client(Digits, idempotent=False) as c, pytest.raises(KeyError, match="the culprit") as caught:
        c.post_all("/echo", json=["raise", "b", "c"])

    assert [frame.name for frame in traceback.extract_tb(caught.tb)].count("handle_async_request") == 1


def test_requests_sent_together_raise_the_first_error(digits: Client) -> None:
    """When the others have been answered: those that are not to blame worked."""
    with pytest.raises(KeyError, match="the culprit"):
        digits.post_all("/echo", json=["a", "raise", "b", "raise"])

    assert answered("echo", 2) in digits.get("/metrics").text


def test_what_is_raised_has_a_hint() -> None:
    """As in the log; pytest shows it."""

    class Forgetful(Digits):
        def setup(self) -> None: ...

    with client(Forgetful) as c, pytest.raises(AttributeError) as caught:
        c.post("/predict", json=[1, 2])
    assert caught.value.__notes__ == ["hint: setup() does not set self.thread; self has no attributes"]

    class Failing(Digits):
        def setup(self) -> None:
            self.thread = self.threads  # type: ignore[attr-defined]

    with pytest.raises(AttributeError) as caught, client(Failing):
        pass
    assert caught.value.__notes__ == ["hint: setup() does not set self.threads; self has no attributes"]


@pytest.mark.parametrize(
    ("item", "cause"), [("exit", SystemExit), ("stop", StopIteration), ("interrupt", KeyboardInterrupt)]
)
def test_what_an_event_loop_cannot_pass_on_is_a_cause(
    digits: Client, item: str, cause: type[BaseException]
) -> None:
    """It would end the loop, or a coroutine, in place of the test. The service takes requests again."""
    with pytest.raises(RuntimeError, match=f"the service raised {cause.__name__}") as caught:
        digits.post("/echo", json=item)

    assert isinstance(caught.value.__cause__, cause)
    eventually(lambda: is_ready(digits))
    assert digits.post("/echo", json="next").json() == "next"
    assert Digits.set_up == 1


def test_answers_of_handlers_that_raise_can_be_had(caplog: pytest.LogCaptureFixture) -> None:
    """As clients get them: an id, under which the log has the rest."""
    with client(Digits, raise_handler_errors=False) as c:
        good, bad = c.post_all("/echo", json=["a", "raise"])
        interrupted = c.post("/echo", json="interrupt")

    assert (good.json(), bad.status_code, interrupted.status_code) == ("a", 500, 500)
    _, _, error_id = bad.json()["detail"].partition("error id ")
    (record,) = [one for one in caplog.records if error_id in one.getMessage()]
    assert "the culprit" in logging.Formatter().format(record)


def test_a_batch_past_its_timeout(digits: Client) -> None:
    """The client has 504; the thread takes batches again when the handler has come back."""
    _gates["slow"] = threading.Event()
    late = digits.post("/wait", json="slow")
    refused = digits.post("/predict", json=[1, 2])
    _gates["slow"].set()
    eventually(lambda: is_ready(digits))

    assert (late.status_code, refused.status_code) == (504, 503)
    assert digits.post("/predict", json=[1, 2]).json() == 3
    assert 'uncork_worker_restarts_total{service="digits"} 1.0' in digits.get("/metrics").text


def test_a_client_that_gives_up(digits: Client) -> None:
    """It has what httpx has for it."""
    with pytest.raises(httpx.ReadTimeout):
        digits.post("/held", json=1, timeout=0.001)

    assert digits.get("/livez").status_code == 200


def test_the_end_of_the_block_answers_what_was_asked() -> None:
    """What is held is released at once, as when a server stops."""
    with ThreadPoolExecutor(1) as pool:
        with client(Digits) as c:
            asked = pool.submit(c.post, "/held", json=1)
            eventually(lambda: _ONE_IS_HELD in c.get("/metrics").text)

        assert asked.result(HANG_S).json() == 1


class Broken(Service):
    def setup(self) -> None:
        raise FileNotFoundError("no model")

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        return items


class Leaving(Broken):
    def setup(self) -> None:
        sys.exit("no model")


class Sticky(Broken):
    def setup(self) -> None: ...

    def teardown(self) -> None:
        raise OSError("sticky")


class Wrong(Broken):
    @api(input=Json(), policy="magic")
    def other(self, items: list[Any]) -> list[Any]:
        return items


class Empty(Service): ...


@pytest.mark.parametrize(
    ("service", "error", "message"),
    [
        (Broken, FileNotFoundError, "^no model$"),
        (Leaving, RuntimeError, "the service raised SystemExit: no model"),
        (Sticky, OSError, "sticky"),
        (Wrong, DefinitionError, "API 'other': policy: unknown policy 'magic'"),
        (Empty, DefinitionError, "service Empty has no API"),
        (Digits(), TypeError, "client.. takes a subclass of uncork.Service, got <"),
        ("service.py:Digits", TypeError, "client.. takes a subclass of uncork.Service, got 'service.py"),
    ],
)
async def test_a_service_that_cannot_be_run(service: Any, error: type[Exception], message: str) -> None:
    """Says why where it is run."""
    with pytest.raises(error, match=message), client(service):
        pass
    with pytest.raises(error, match=message):
        async with async_client(service):
            pass


def test_wrong_overrides() -> None:
    with pytest.raises(
        TypeError, match="no argument 'batch_size'; arguments of @api that it accepts are mb_max_latency, "
    ):
        client(Digits, batch_size=3).__enter__()  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="API 'predict': timeout must be a positive number of seconds"):
        client(Digits, timeout=0).__enter__()


def test_what_the_block_raises_passes() -> None:
    """Whatever the exception; the service still stops."""
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), client(Digits):
            raise error


async def test_asyncio() -> None:
    """Requests that are gathered share a batch, and the loop runs while a handler does."""
    async with async_client(Digits) as c:
        gathered = await asyncio.gather(*(c.post("/held", json=n) for n in range(8)))
        together = await c.post_all("/predict", json=[[n, n] for n in range(5)])
        with pytest.raises(KeyError, match="the culprit"):
            await c.post("/echo", json="raise")

    assert isinstance(c, httpx.AsyncClient)
    assert [reply.json() for reply in gathered] == [8] * 8
    assert {reply.headers["x-batch-size"] for reply in together} == {"5"}


async def test_a_task_that_is_cancelled_leaves_the_queue() -> None:
    """As a client that goes: the eighth row is another's."""
    async with async_client(Digits) as c:
        leaving = asyncio.create_task(c.post("/held", json=0))
        while _ONE_IS_HELD not in (await c.get("/metrics")).text:
            pass
        leaving.cancel()
        replies = await c.post_all("/held", json=range(8))
        assert {reply.headers["x-batch-size"] for reply in replies} == {"8"}


async def test_a_request_that_cannot_be_sent_holds_nobody_up() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"1"
        raise ValueError("the body ends here")

    async with async_client(Digits) as c:
        requests = [
            c.build_request("POST", "/echo", json=1),
            c.build_request("POST", "/echo", content=broken()),
        ]
        with pytest.raises(ValueError, match="the body ends here"):
            await c.send_all(requests)
        assert answered("echo", 1) in (await c.get("/metrics")).text


async def test_requests_share_a_batch_however_long_their_bodies_take() -> None:
    async def slow() -> AsyncIterator[bytes]:
        for piece in (b'"', b"slow", b'"'):
            await asyncio.sleep(0)
            yield piece

    headers = {"content-type": "application/json"}
    async with async_client(Digits) as c:
        requests = [
            c.build_request("POST", "/echo", json=1),
            c.build_request("POST", "/echo", content=slow(), headers=headers),
        ]
        replies = await c.send_all(requests)
    assert [reply.json() for reply in replies] == [1, "slow"]
    assert [reply.headers["x-batch-size"] for reply in replies] == ["2", "2"]


class Telling(Service):
    """Streams the values that the test sets."""

    closed = 0

    @api(input=Json(), policy="none")
    async def tell(self, items: list[Any]) -> AsyncIterator[Any]:
        """Each, or what it stands for; without end if it is one number."""
        [words] = items
        try:
            for word in itertools.count(words) if isinstance(words, int) else words:
                await asyncio.sleep(0)
                if word == "raise":
                    raise KeyError("the culprit")
                yield {"word": word}
        finally:
            type(self).closed += 1


def test_what_is_streamed_is_read_whole() -> None:
    """With the client for threads, which has no other way; another policy for all does not batch it."""
    with client(Telling, policy="cork") as c:
        replies = c.post_all("/tell", json=[["a", "b"], ["c"]])

    assert [reply.text for reply in replies] == ['{"word":"a"}\n{"word":"b"}\n', '{"word":"c"}\n']
    assert {reply.headers["x-batch-size"] for reply in replies} == {"1"}


def test_a_stream_that_fails_raises_what_the_handler_raised() -> None:
    """In its middle too, where there is no answer any more that would say so."""
    with client(Telling) as c:
        for words in (["raise"], ["a", "raise"]):
            with pytest.raises(KeyError, match="the culprit"):
                c.post("/tell", json=words)
        assert c.post("/tell", json=["a"]).status_code == 200
    with (
        client(Telling, raise_handler_errors=False) as c,
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
    ):
        c.post("/tell", json=["a", "raise"])


async def test_an_asynchronous_client_streams() -> None:
    async with async_client(Telling) as c:
        before = Telling.closed
        async with c.stream("POST", "/tell", json=5) as reply:
            lines = reply.aiter_lines()
            assert [await anext(lines) for _ in range(2)] == ['{"word":5}', '{"word":6}']
        # There is one worker: who is answered comes after the end of the one before.
        assert (await c.post("/tell", json=[])).content == b""
        assert Telling.closed == before + 2


class Counting(Service):
    @api(input=Json(), headers=("x-tenant", "x-request-id"))
    def predict(self, items: list[Any]) -> list[Any]:
        context().count("rows", len(items), kind="whole")
        context().observe("sizes", len(items))
        return [f"{tenant} {name}" for tenant, name in zip(*context().headers.values(), strict=True)]


def test_what_handlers_read_and_record() -> None:
    with client(Counting) as c:
        reply = c.post("/predict", json=[1, 2], headers={"X-Tenant": "me", "X-Request-Id": "one"})
        lines = c.get("/metrics").text.splitlines()

    assert (reply.json(), reply.headers["x-request-id"]) == ("me one", "one")
    labels = 'api="predict",kind="whole",service="counting"'
    assert f"app_rows_total{{{labels}}} 1.0" in lines
    assert 'app_sizes_bucket{api="predict",le="1.0",service="counting"} 1.0' in lines
