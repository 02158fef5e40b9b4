"""The worker process: its messages to the gateway, and its exit."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from tests.loops import HANG_S
from tests.workers.fake_gateway import listening
from uncork_workers.definition.outputs.media_types import DEFAULT_MEDIA_TYPES
from uncork_workers.process.worker import EXIT_LOAD, EXIT_SETUP, main
from uncork_workers.wire.frames import Frame, FrameError
from uncork_workers.wire.handshake import PROTOCOL
from uncork_workers.wire.messages import Batch, Failed, Hello, Message, Ready, Reply, RowResult, WarmUp
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

SERVICE = """
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import (Service, api)

def note(text):
    with open("noted", "a") as file:
        file.write(text + ", ")

class Shout(Service):
    def setup(self):
        note(f"setup {self.worker_index}")
        self.mark = "!"

    def teardown(self):
        note("teardown")

    @api(input=Json())
    def shout(self, items):
        return [item.upper() + self.mark for item in items]
"""
WARM = f"""{SERVICE}
from uncork_workers.process.context import context

class Warm(Shout):
    def setup(self):
        self.seen = []

    @api(input=Json(), warmup="a")
    def echo(self, items):
        self.seen.append((context().batch_id, len(items)))
        return [self.seen] * len(items)

class Wrong(Warm):
    @api(input=Json(), warmup="a")
    def echo(self, items):
        if len(items) == 2:
            raise ValueError("two is too many")
        return items
"""
HELLO = Hello(
    index=4,
    launch=9,
    pid=os.getpid(),
    service=ServiceDescription(
        name="Shout",
        apis=[
            ApiDescription(
                name="shout",
                route="/shout",
                input={"kind": "json"},
                offers=DEFAULT_MEDIA_TYPES,
                example=b"{}",
                example_type="application/json",
            )
        ],
    ),
)
BODIES = [b'"a"', b'"bc"', b"5"]
BATCH = Batch(batch=1, api="shout", limit_rows=9, lengths=[3, 4], rows=[1, 1])


@pytest.fixture
def signals() -> Iterator[None]:
    saved = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)


@pytest.fixture
def place(project: Path, signals: None) -> Path:
    (project / "shout.py").write_text(SERVICE)
    return project


def serve(
    place: Path, target: str, *frames: tuple[Message, Sequence[bytes]], arguments: Sequence[str] = ()
) -> tuple[int, list[Frame]]:
    socket = place / "s"
    with listening(socket) as gateway:
        said = gateway.say(*frames)
        code = main([target, "--socket", str(socket), "--index", "4", "--launch", "9", *arguments])
        return code, said.result()


def command(target: str, *dialing: str) -> list[str]:
    where = dialing or ("--socket", "s")
    return [sys.executable, "-m", "uncork_workers", target, *where, "--index", "4", "--launch", "9"]


def test_a_service_knows_its_number_and_is_told_of_the_end(place: Path) -> None:
    """Also if the worker ends because of an invalid frame."""
    serve(place, "shout.py:Shout")
    (place / "s").unlink()
    with pytest.raises(FrameError):
        serve(place, "shout.py:Shout", (Ready(), ()))

    assert (place / "noted").read_text() == "setup 4, teardown, setup 4, teardown, "


def test_a_worker_warms_up_before_it_is_ready(place: Path) -> None:
    (place / "warm.py").write_text(WARM)
    batch = Batch(batch=1, api="echo", limit_rows=9, lengths=[1], rows=[1], id="x-1")
    arguments = ["--warmup-seconds", "60", "--overrides", '[{"argument": "mb_max_batch_size", "value": 3}]']

    code, said = serve(place, "warm.py:Warm", (batch, [b"0"]), arguments=arguments)

    _, *told, (ready, _), (_, payload) = said
    assert [one.message for one in told] == [WarmUp(api="echo", rows=rows) for rows in (1, 2, 3)]
    assert isinstance(ready, Ready)
    assert {api: [rows for rows, _ in chunks] for api, chunks in ready.profile.items()} == {"echo": [1, 2, 3]}
    assert all(seconds > 0 for _, seconds in ready.profile["echo"])
    assert ready.results == {"echo": RowResult(body=b'[["warm-up",1],["warm-up",1]]')}
    warmed = [["warm-up", rows] for rows in (1, 1, 2, 2, 3, 3)]
    assert msgspec.json.decode(payload) == [*warmed, ["x-1", 1]]
    assert code == 0


@pytest.mark.parametrize("arguments", [[], ["--warmup-seconds", "0"]])
def test_a_worker_need_not_warm_up(place: Path, arguments: list[str]) -> None:
    (place / "warm.py").write_text(WARM)
    _, (_, (ready, _)) = serve(place, "warm.py:Wrong", arguments=arguments)

    assert isinstance(ready, Ready)
    assert ready.profile == {}


def test_a_warm_up_that_fails_is_told_with_its_traceback(place: Path) -> None:
    """The worker was never ready, and exits as after a failed setup, but with teardown."""
    (place / "warm.py").write_text(WARM)
    code, said = serve(place, "warm.py:Wrong", arguments=["--warmup-seconds", "60"])

    *_, (failed, _) = said
    assert isinstance(failed, Failed)
    message = "echo raised ValueError on its warm-up example (rows: 2): two is too many"
    assert (failed.index, failed.stage, failed.message) == (4, "warmup", message)
    assert 'raise ValueError("two is too many")' in failed.traceback
    assert code == EXIT_SETUP
    assert (place / "noted").read_text() == "teardown, "


def test_a_worker_serves_until_the_gateway_goes(place: Path) -> None:
    second = Batch(batch=2, api="shout", limit_rows=9, lengths=[4], rows=[1])

    code, said = serve(place, "shout.py:Shout", (BATCH, BODIES[:2]), (second, BODIES[1:2]))

    hello, ready, first_reply, second_reply = said
    assert isinstance(hello.message, Hello)
    expected = msgspec.structs.replace(HELLO, files=[str(place / "shout.py")], code=hello.message.code)
    assert hello == Frame(expected, b"")
    assert len(hello.message.code) == len(sha256().hexdigest())
    assert isinstance(ready.message, Ready)
    of_ready = Ready(files=[str(place / "shout.py")], surroundings=ready.message.surroundings)
    assert ready == Frame(of_ready, b"")
    assert len(ready.message.surroundings) == len(sha256().hexdigest())
    message, payload = first_reply
    assert isinstance(message, Reply)
    assert (message.batch, message.worked, message.statuses, message.lengths) == (1, True, [200, 200], [4, 5])
    assert [rows for rows, _ in message.chunks] == [2]
    assert payload == b'"A!""BC!"'
    assert isinstance(second_reply.message, Reply)
    assert (second_reply.message.batch, second_reply.payload) == (2, b'"BC!"')
    assert code == 0


def test_a_service_that_cannot_be_found_is_told(place: Path) -> None:
    code, said = serve(place, "shout.py:Whisper")

    message = "shout.py has no 'Whisper'; available services: Shout"
    assert said == [Frame(Failed(index=4, stage="load", message=message), b"")]
    assert code == EXIT_LOAD == 2


@pytest.mark.parametrize("error", ["KeyError", "SystemExit", "BaseException"])
def test_a_service_that_cannot_be_imported_is_told_with_its_traceback(place: Path, error: str) -> None:
    (place / "broken.py").write_text(f"def fail():\n    raise {error}(1)\nfail()")

    code, said = serve(place, "broken.py:Shout")

    ((failed, _),) = said
    assert isinstance(failed, Failed)
    assert (failed.stage, failed.message) == ("load", f"broken.py cannot be imported: {error}: 1")
    assert f"raise {error}(1)" in failed.traceback
    assert code == EXIT_LOAD


@pytest.mark.parametrize(
    ("method", "fails", "message", "ends"),
    [
        ("setup", "raise OSError('no model')", "OSError: no model", "no model"),
        ("setup", "raise SystemExit('no model')", "SystemExit: no model", "no model"),
        ("__init__", "raise KeyboardInterrupt", "KeyboardInterrupt: ", "KeyboardInterrupt"),
        (
            "setup",
            "self.mark = self.mrk",
            "AttributeError: 'Late' object has no attribute 'mrk'",
            "hint: setup() does not set self.mrk; self has no attributes",
        ),
    ],
)
def test_a_setup_that_fails_is_told_with_its_traceback_and_a_hint(
    place: Path, method: str, fails: str, message: str, ends: str
) -> None:
    """After Hello; the constructor counts as setup."""
    code = f"class Late(Shout):\n    def {method}(self):\n        {fails}"
    (place / "late.py").write_text(f"{SERVICE}\n{code}")

    exit_code, said = serve(place, "late.py:Late")

    hello, (failed, _) = said
    assert isinstance(hello.message, Hello)
    assert isinstance(failed, Failed)
    assert (failed.index, failed.stage, failed.message) == (4, "setup", message)
    assert fails in failed.traceback
    assert failed.traceback.endswith(f"{ends}\n")
    assert exit_code == EXIT_SETUP == 1


BROKEN = """
class Broken(TypeError):
    def __str__(self):
        raise ValueError("no text")
"""


@pytest.mark.parametrize("stage", ["load", "setup", "warmup"])
@pytest.mark.parametrize("error", ["Broken()", r"OSError('no caf\udce9')"])
def test_an_exception_without_a_text_that_can_be_sent_is_told_too(
    place: Path, stage: str, error: str
) -> None:
    """Its ``__str__`` raises, or it has the name of a file that is not UTF-8."""
    codes = {
        "load": f"raise {error}",
        "setup": f"class Wrong(Warm):\n    def setup(self):\n        raise {error}",
        "warmup": f"class Wrong(Shout):\n    @api(input=Json(), warmup='a')\n"
        f"    def echo(self, items):\n        raise {error}",
    }
    (place / "warm.py").write_text(f"{WARM}\n{BROKEN}\n{codes[stage]}")

    _, (*_, (failed, _)) = serve(place, "warm.py:Wrong", arguments=["--warmup-seconds", "60"])

    assert isinstance(failed, Failed)
    text = "<exception str() failed>" if error == "Broken()" else r"no caf\udce9"
    assert failed.stage == stage
    assert failed.message.endswith(f": {text}")
    assert f"{error.partition('(')[0]}: {text}" in failed.traceback


def test_a_service_may_be_in_a_folder_whose_name_is_not_utf_8(place: Path) -> None:
    folder = Path(os.fsdecode(b"caf\xe9"))
    folder.mkdir()
    (folder / "loud.py").write_text(SERVICE)

    _, (hello, ready, reply) = serve(place, f"{folder}/loud.py:Shout", (BATCH, BODIES[:2]))

    for one in (hello.message, ready.message):
        assert isinstance(one, Hello | Ready)
        assert one.files == [rf"{place}/caf\udce9/loud.py"]
    assert isinstance(reply.message, Reply)
    assert reply.message.statuses == [200, 200]


@pytest.mark.parametrize("error", ["OSError", "SystemExit"])
def test_a_teardown_that_fails_is_logged(place: Path, error: str, caplog: pytest.LogCaptureFixture) -> None:
    code = f"class Late(Shout):\n    def teardown(self):\n        raise {error}('gone')"
    (place / "late.py").write_text(f"{SERVICE}\n{code}")

    exit_code, _ = serve(place, "late.py:Late")

    [record] = caplog.records
    assert record.getMessage() == "teardown of Late failed; the worker exits anyway"
    assert record.exc_info is not None
    assert exit_code == 0


def test_a_gateway_of_another_protocol_is_refused(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its server may be of another version of Uncork than the interpreter of the worker."""
    with listening(place / "s"):
        arguments = ["--socket", str(place / "s"), "--protocol", "999", "--index", "0", "--launch", "9"]
        code = main(["shout.py:Shout", *arguments])

    assert code == 2
    assert (
        f"speaks worker protocol {PROTOCOL}, the gateway speaks 999; install the gateway's version"
        in caplog.text
    )


def test_a_gateway_that_hangs_up_or_is_not_there_is_no_error(place: Path) -> None:
    arguments = ["shout.py:Shout", "--socket", str(place / "s"), "--index", "0", "--launch", "9"]
    assert main(arguments) == 0
    with listening(place / "s") as gateway:
        gone = gateway.hang_up()
        assert main(arguments) == 0
        gone.result()


def test_a_real_process_leaves_signals_to_the_gateway(place: Path) -> None:
    """Ctrl-C and SIGTERM do not end it; a closed connection does."""
    with listening(place / "s") as gateway:
        process = subprocess.Popen(command("shout.py:Shout"), cwd=place, stderr=subprocess.PIPE)
        worker = gateway.accept()
        hello = worker.next().message
        assert isinstance(worker.next().message, Ready)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        worker.send((BATCH, BODIES[:2]))
        reply = worker.next()
        worker.finish()
        _, errors = process.communicate(timeout=HANG_S)
        worker.close()

    assert isinstance(hello, Hello)
    assert hello.pid == process.pid
    assert reply.payload == b'"A!""BC!"'
    assert (process.returncode, errors) == (0, b"")


def test_what_a_handler_prints_is_seen_at_once(place: Path) -> None:
    code = "class Loud(Shout):\n    def setup(self):\n        print('loading')\n        super().setup()"
    (place / "loud.py").write_text(f"{SERVICE}\n{code}")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with listening(place / "s") as gateway:
        process = subprocess.Popen(command("loud.py:Loud"), cwd=place, stdout=subprocess.PIPE, env=buffered)
        worker = gateway.accept()
        worker.next()
        assert isinstance(worker.next().message, Ready)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        printed = process.stdout.read()
        worker.finish()
        process.communicate(timeout=HANG_S)
        worker.close()

    assert printed == b"loading\n"


def test_a_launched_worker_says_that_it_cannot_reach_the_gateway(project: Path) -> None:
    """By its exit code, as its output may be on another machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    ran = subprocess.run(
        command("m:S", "--gateway", address),
        env={**os.environ, "UNCORK_WORKER_TOKEN": "a token for this test"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 3
    assert f"cannot reach the gateway: {address}: " in ran.stderr
