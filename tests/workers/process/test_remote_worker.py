"""A worker that dials by itself: what it keeps between gateways, and how it ends."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops import HANG_S
from tests.workers.fake_gateway import (
    CHALLENGE,
    TOKEN,
    Admitted,
    Connection,
    FakeTcpGateway,
    worker_port,
)
from uncork_workers.process.hosted_service import HostedService, StageFailed
from uncork_workers.process.remote_worker import MemoryExceeded, MemoryLimit, ReadyFile, RemoteWorker
from uncork_workers.wire.dialing import VERSION, Dialer, GatewayRefuses
from uncork_workers.wire.handshake import Challenge
from uncork_workers.wire.messages import (
    Batch,
    Failed,
    Goodbye,
    Hello,
    Leaving,
    Message,
    Piece,
    Ready,
    Reply,
    WarmUp,
)
from uncork_workers.wire.overrides import for_all_apis

SERVICE = """
import asyncio
import os
import signal
import threading
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import (Service, api)

def note(text):
    with open("noted", "a") as file:
        file.write(text + " ")

def stop(times):
    for _ in range(times):
        signal.raise_signal(signal.SIGTERM)

class Noting(Service):
    def setup(self):
        note(f"setup{self.worker_index}")

    def teardown(self):
        note("teardown")

    @api(input=Json(), warmup=1)
    def index(self, items):
        return [self.worker_index] * len(items)

    @api(input=Json())
    def stop(self, items):
        try:
            stop(items[0])
        except Exception:
            note("caught")
        return items

    @api(input=Json())
    def hang(self, items):
        note("hangs")
        threading.Event().wait()

class Waits(Noting):
    @api(input=Json(), policy="none", concurrency=2)
    async def wait(self, items):
        yield "waits"
        await asyncio.Event().wait()

class StopsInSetup(Noting):
    def setup(self):
        super().setup()
        stop(1)

class StopsInTeardown(Noting):
    def teardown(self):
        super().teardown()
        stop(1)
        note("went on")

class Broken(Noting):
    def setup(self):
        open("in setup", "w").close()
        while not os.path.exists("go on"):
            pass
        raise ValueError("no model")
"""


@pytest.fixture(autouse=True)
def place(project: Path) -> Iterator[Path]:
    """A folder with services; signal handlers are restored afterwards."""
    (project / "noting.py").write_text(SERVICE)
    saved = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield project
    for number, handler in saved.items():
        signal.signal(number, handler)


@pytest.fixture
def gateway() -> Iterator[FakeTcpGateway]:
    with worker_port() as made:
        yield made


def noted() -> list[str]:
    return Path("noted").read_text().split()


def run(
    gateway: FakeTcpGateway,
    target: str = "noting.py:Noting",
    *,
    sleep: Callable[[float], object] = lambda seconds: None,
    **options: Any,
) -> None:
    dialer = Dialer(addresses=[gateway.address], token=TOKEN, instance="i")
    with contextlib.closing(HostedService(target)) as hosted:
        RemoteWorker(hosted, dialer.dial, node="far", sleep=sleep, **options).run()


def during(
    gateway: FakeTcpGateway, talk: Callable[[], None], target: str = "noting.py:Noting", **options: Any
) -> None:
    talking = gateway.during(talk)
    try:
        run(gateway, target, **options)
    finally:
        talking.result()


def stop() -> None:
    """Send SIGTERM to the worker, which runs in the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)


def started(admitted: Admitted) -> list[Message]:
    said = [admitted.worker.next().message]
    while not isinstance(said[-1], Ready):
        said.append(admitted.worker.next().message)
    return said


def ready(gateway: FakeTcpGateway) -> Connection:
    admitted = gateway.admit()
    started(admitted)
    return admitted.worker


def batch(number: int, api: str, body: bytes, *, timeout_s: float = 60.0) -> tuple[Batch, list[bytes]]:
    return Batch(number, api, 9, [len(body)], [1], timeout_s=timeout_s), [body]


def leave(worker: Connection) -> None:
    stop()
    assert worker.next().message == Leaving()
    worker.close()


def test_a_worker_keeps_its_service_for_the_next_gateway(
    gateway: FakeTcpGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The index may be another one."""

    def talk() -> None:
        for index in (4, 7):
            admitted = gateway.admit(index=index)
            hello, _ = started(admitted)
            assert isinstance(hello, Hello)
            assert (hello.index, hello.launch, hello.host, hello.version) == (index, None, "far", VERSION)
            admitted.worker.send(batch(1, "index", b"0"))
            assert admitted.worker.next().payload == b"%d" % index
            if index == 7:
                leave(admitted.worker)
            admitted.worker.close()

    handler = signal.getsignal(signal.SIGTERM)
    during(gateway, talk)
    assert noted() == ["setup4", "teardown"]
    assert signal.getsignal(signal.SIGTERM) is handler
    [gone] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert gone == f"gateway {gateway.address} is gone (it closed the connection); dialing again"


def test_the_warm_up_is_repeated_when_the_gateway_has_other_settings(gateway: FakeTcpGateway) -> None:
    def talk() -> None:
        small, large = (for_all_apis({"mb_max_batch_size": size}) for size in (1, 2))
        sizes = []
        for seconds, overrides in ((60.0, small), (60.0, small), (60.0, large), (0.0, large)):
            admitted = gateway.admit(warmup_seconds=seconds, overrides=overrides)
            said = started(admitted)
            sizes.append([one.rows for one in said if isinstance(one, WarmUp)])
            ready = said[-1]
            assert isinstance(ready, Ready)
            profiles.append(len(ready.profile.get("index", [])))
            if seconds == 0:
                leave(admitted.worker)
            admitted.worker.close()
        assert sizes == [[1], [], [1, 2], []]

    profiles: list[int] = []
    during(gateway, talk)
    assert profiles == [1, 1, 2, 0]


def test_a_gateway_that_goes_in_the_warm_up_is_no_failure_of_it(gateway: FakeTcpGateway) -> None:
    def talk() -> None:
        for last in (False, True):
            admitted = gateway.admit(warmup_seconds=60, overrides=for_all_apis({"mb_max_batch_size": 1}))
            if not last:
                admitted.worker.close()
                continue
            assert started(admitted)[1] == WarmUp("index", 1)
            leave(admitted.worker)

    during(gateway, talk)
    assert noted() == ["setup0", "teardown"]


def test_a_signal_ends_a_worker_that_dials(gateway: FakeTcpGateway) -> None:
    """In the handshake, which the gateway does not go on with."""

    def talk() -> None:
        newcomer = gateway.accept()
        newcomer.send(CHALLENGE)
        newcomer.application()
        stop()
        assert newcomer.gone()
        newcomer.close()

    during(gateway, talk)
    assert not Path("noted").exists()


def test_a_signal_ends_a_worker_that_finds_no_gateway(
    gateway: FakeTcpGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """While it pauses. It logs the same reason once."""
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            signal.raise_signal(signal.SIGTERM)

    def talk() -> None:
        for _ in range(20):
            gateway.accept().close()

    during(gateway, talk, sleep=pause)
    assert len(pauses) == 20
    reason = "the gateway closed the connection during the handshake; its log says why"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"no gateway answers, dialing again: {gateway.address}: {reason}"
    ]


def test_a_signal_ends_a_worker_in_its_setup(gateway: FakeTcpGateway) -> None:
    """Which has set up nothing that could be torn down."""

    def talk() -> None:
        worker, _ = gateway.admit()
        assert [type(frame.message) for frame in worker.rest()] == [Hello]
        worker.close()

    during(gateway, talk, "noting.py:StopsInSetup")
    assert noted() == ["setup0"]


def test_a_signal_lets_a_worker_finish_its_batch(gateway: FakeTcpGateway) -> None:
    def talk() -> None:
        worker = ready(gateway)
        worker.send(batch(1, "stop", b"1"))
        reply, leaving = worker.next(), worker.next()
        assert isinstance(reply.message, Reply)
        assert (reply.message.statuses, reply.payload, leaving.message) == ([200], b"1", Leaving())
        worker.close()

    during(gateway, talk)
    assert noted() == ["setup0", "teardown"]


def test_a_second_signal_ends_the_batch(gateway: FakeTcpGateway) -> None:
    """The handler cannot catch it as an Exception."""

    def talk() -> None:
        worker = ready(gateway)
        worker.send(batch(1, "stop", b"2"))
        assert worker.rest() == []
        worker.close()

    during(gateway, talk)
    assert noted() == ["setup0", "teardown"]


def test_a_gateway_that_says_goodbye_is_dialed_again(
    gateway: FakeTcpGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has its reason, and does not say that it is gone."""
    caplog.set_level("INFO", "uncork.worker")

    def talk() -> None:
        for last in (False, True):
            worker = ready(gateway)
            if last:
                leave(worker)
            else:
                worker.send((Goodbye("others have taken over"), []))
                worker.close()

    during(gateway, talk)
    text = f"gateway {gateway.address} closed the connection: others have taken over; dialing again"
    assert text in caplog.messages
    assert "is gone" not in caplog.text


def test_a_final_goodbye_ends_the_worker(gateway: FakeTcpGateway) -> None:
    def talk() -> None:
        worker = ready(gateway)
        worker.send((Goodbye("another one", is_final=True), []))
        worker.close()

    with pytest.raises(GatewayRefuses, match=f"{gateway.address}: another one"):
        during(gateway, talk, sleep=lambda _: pytest.fail("dials again"))
    assert noted() == ["setup0", "teardown"]


def test_a_gateway_of_another_version_is_warned_of(
    gateway: FakeTcpGateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.workers.fake_gateway.CHALLENGE", Challenge(CHALLENGE.nonce, CHALLENGE.protocol, "9.9")
    )

    def talk() -> None:
        leave(ready(gateway))

    during(gateway, talk)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"the gateway has uncork 9.9, this worker has {VERSION}; install the same")


@pytest.mark.parametrize("gateway_stays", [False, True])
def test_a_setup_that_fails_ends_the_worker(gateway: FakeTcpGateway, gateway_stays: bool) -> None:
    """With its own error, also if the gateway has gone meanwhile and cannot be told."""

    def talk() -> None:
        worker, _ = gateway.admit()
        while not Path("in setup").exists():
            pass
        if not gateway_stays:
            worker.close()
        Path("go on").touch()
        if gateway_stays:
            _, failed = (frame.message for frame in worker.rest())
            assert isinstance(failed, Failed)
            assert (failed.stage, failed.message) == ("setup", "ValueError: no model")
            worker.close()

    with pytest.raises(StageFailed, match="ValueError: no model"):
        during(gateway, talk, "noting.py:Broken")


def test_a_batch_that_cannot_be_read_is_not_overdue_later(gateway: FakeTcpGateway) -> None:
    """The worker ends the connection, dials again, and has no batch that could be overdue."""
    hosted = HostedService("noting.py:Noting")

    def talk() -> None:
        worker = ready(gateway)
        broken, _ = batch(1, "index", b"00")
        worker.send((broken, [b"0"]))
        assert worker.rest() == []
        worker.close()
        worker = ready(gateway)
        due.append(hosted.due_at)
        leave(worker)

    due: list[float] = []
    talking = gateway.during(talk)
    dialer = Dialer(addresses=[gateway.address], token=TOKEN, instance="i")
    RemoteWorker(hosted, dialer.dial, node="far", sleep=lambda seconds: None).run()
    talking.result()
    assert due == [float("inf")]


def test_a_worker_whose_connections_end_at_once_dials_less_and_less(gateway: FakeTcpGateway) -> None:
    """As when the gateway cannot read its messages."""

    def talk() -> None:
        for _ in range(10):
            gateway.admit().worker.close()
        leave(ready(gateway))

    delays: list[float] = []
    during(gateway, talk, sleep=delays.append)
    assert len(delays) == 10
    for delay, least in zip(delays, (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5), strict=True):
        assert least <= delay <= 3 * least


def test_the_ready_file_exists_while_a_gateway_may_send_batches(gateway: FakeTcpGateway) -> None:
    """Neither before the setup, where a killed process may have left it, nor between gateways, nor after."""
    path = Path("ready")
    path.touch()
    seen = []

    def talk() -> None:
        for last in (False, True):
            worker, _ = gateway.admit()
            seen.append(path.exists())
            while not isinstance(worker.next().message, Ready):
                pass
            seen.append(path.exists())
            if last:
                leave(worker)
            worker.close()

    during(gateway, talk, ready_file=ReadyFile(path))
    assert seen == [False, True] * 2
    assert not path.exists()


def test_a_worker_that_uses_too_much_memory_leaves_after_its_batch(gateway: FakeTcpGateway) -> None:
    """It has checked its memory once before it is ready."""
    used = [0]
    memory = MemoryLimit(2**20, used_bytes=lambda: used[0])

    def talk() -> None:
        worker = ready(gateway)
        used[0] = 2**21
        assert worker.next().message == Leaving()
        worker.send(batch(1, "index", b"0"))
        assert isinstance(worker.next().message, Reply)
        worker.close()

    with pytest.raises(
        MemoryExceeded, match="the worker uses 2 MiB, more than the limit of 1 MiB, and has left"
    ):
        during(gateway, talk, memory=memory)
    assert noted() == ["setup0", "teardown"]


def test_a_worker_whose_model_alone_takes_too_much_memory_stays(
    gateway: FakeTcpGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """It would exceed the limit again after each restart."""

    def talk() -> None:
        worker = ready(gateway)
        assert "before its first batch; it will not leave for its memory" in caplog.text
        leave(worker)

    during(gateway, talk, memory=MemoryLimit(2**20, used_bytes=lambda: 2**21))


COMMAND = """
from contextlib import closing
from pathlib import Path
import sys
from uncork_workers.process.hosted_service import HostedService
from uncork_workers.process.remote_worker import ReadyFile
from uncork_workers.process.remote_worker import RemoteWorker
from uncork_workers.wire.dialing import Dialer, read_addresses

with closing(HostedService("noting.py:" + sys.argv[2])) as hosted:
    dialer = Dialer(addresses=read_addresses(sys.argv[1]), token=b"0123456789abcdef", instance="i")
    RemoteWorker(hosted, dialer.dial, node="far", ready_file=ReadyFile(Path("ready"))).run()
"""


@contextlib.contextmanager
def process(gateway: FakeTcpGateway, service: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", COMMAND, str(gateway.address), service]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as made:
        try:
            yield made
        finally:
            made.kill()


def test_a_second_signal_ends_a_worker_that_runs_several_batches(gateway: FakeTcpGateway) -> None:
    """At once: it does not reply to them any more."""
    with process(gateway, "Waits") as running:
        worker = ready(gateway)
        for number in (1, 2):
            worker.send(batch(number, "wait", b"0"))
            assert isinstance(worker.next().message, Piece)
        running.send_signal(signal.SIGTERM)
        assert worker.next().message == Leaving()
        running.send_signal(signal.SIGTERM)
        assert worker.rest() == []
        worker.close()
        running.communicate(timeout=HANG_S)

    assert running.returncode == 0
    assert noted()[-1] == "teardown"


def test_an_overdue_batch_ends_the_process(gateway: FakeTcpGateway) -> None:
    """No gateway could kill it."""
    with process(gateway, "Noting") as running:
        worker = ready(gateway)
        assert Path("ready").exists()
        worker.send(batch(1, "hang", b"0", timeout_s=0.0))
        assert worker.rest() == []
        worker.close()
        _, errors = running.communicate(timeout=HANG_S)

    assert running.returncode == 1
    assert not Path("ready").exists()
    assert b"a batch exceeds its timeout; ending this worker" in errors
    assert noted() == ["setup0", "hangs"]


def test_a_signal_in_the_teardown_ends_the_process(gateway: FakeTcpGateway) -> None:
    """Without a traceback."""
    with process(gateway, "StopsInTeardown") as running:
        worker = ready(gateway)
        running.send_signal(signal.SIGTERM)
        assert worker.next().message == Leaving()
        worker.close()
        _, errors = running.communicate(timeout=HANG_S)

    assert running.returncode == -signal.SIGTERM
    assert errors == b""
    assert noted() == ["setup0", "teardown"]
