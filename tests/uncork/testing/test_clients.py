"""Tests of services with ``uncork.testing``: what a service's author sees of it."""

from __future__ import annotations

import logging
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.server import eventually
from tests.loops import HANG_S
from tests.uncork.testing.digits import (
    ONE_IS_HELD,
    Digits,
    answered,
    digits,
    gates,
    is_ready,
    nothing_is_left,
)
from uncork import DefinitionError
from uncork.testing import Client, client

__all__ = ["digits", "nothing_is_left"]


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
    with_null = digits.post_all("/echo", json=[None, "x"])
    in_pieces = digits.post("/echo", content=iter([b'"' + b"x" * 100_000, b'y"']), headers=headers)
    requests = [digits.build_request("POST", "/echo", json=1), digits.build_request("GET", "/livez")]

    assert [reply.json() for reply in as_bytes] == [1, "two"]
    assert [reply.json() for reply in with_null] == [None, "x"]
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
    gates["slow"] = threading.Event()
    late = digits.post("/wait", json="slow")
    refused = digits.post("/predict", json=[1, 2])
    gates["slow"].set()
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
            eventually(lambda: ONE_IS_HELD in c.get("/metrics").text)

        assert asked.result(HANG_S).json() == 1


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


def test_errors_of_the_handler_are_raised_without_logs(
    digits: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after dictConfig(), which disables the loggers that exist."""
    monkeypatch.setattr(logging.getLogger("uncork.worker"), "disabled", True)
    with pytest.raises(KeyError, match="the culprit"):
        digits.post("/echo", json="raise")
