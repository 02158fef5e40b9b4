"""``uncork worker``: what of its input is refused, and its exit codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner, Result

from tests.workers.conftest import project
from tests.workers.fake_gateway import CHALLENGE, FakeTcpGateway, worker_port
from uncork.cli.app import app
from uncork_workers.wire.handshake import Refusal
from uncork_workers.wire.messages import Failed, Hello, Message

__all__ = ["project"]

SERVICE = """
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api

class Good(Service):
    @api(input=Json())
    def echo(self, items):
        return items

class Bad(Good):
    def setup(self):
        raise ValueError("no model")
"""


@pytest.fixture(autouse=True)
def files(project: Path) -> Path:
    (project / "services.py").write_text(SERVICE)
    (project / "broken.py").write_text("raise KeyError('x')")
    (project / "token").write_text("0123456789abcdef\n")
    (project / "short").write_text("secret")
    trustme.CA().cert_pem.write_to_path(project / "ca.pem")
    return project


@pytest.fixture
def gateway() -> Iterator[FakeTcpGateway]:
    with worker_port() as made:
        yield made


def run(*more: str, target: str = "services.py:Good", gateway: object = "127.0.0.1:1") -> Result:
    arguments = ["worker", target, "--gateway", str(gateway), "--token-file", "token", *more]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "250"})


def refusal(result: Result) -> str:
    assert result.exit_code == 2
    assert "Traceback (" not in result.output
    return " ".join(result.output.split())


def test_an_address_that_is_none_is_told() -> None:
    says = refusal(run(gateway="gateway:0"))
    assert "'--gateway'" in says
    assert "is not an address; give HOST:PORT, several separated by commas" in says


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--token-file", "missing"], "uncork worker: --token-file: missing: No such file or directory"),
        (["--token-file", "short"], "--token-file: short: the token has 6 bytes, it must have at least 16"),
        (["--tls-key", "ca.pem"], "uncork worker: --tls-key requires --tls-cert"),
        (["--ca", "missing"], "uncork worker: --ca: missing: No such file or directory"),
        (["--ca", "token"], "--ca: token has no certificate in PEM format"),
        (["--tls-cert", "ca.pem"], "--tls-cert: ca.pem has no private key; name the file of"),
        (["--ready-file", "missing/ready"], "--ready-file: missing/ready: No such file or directory"),
        (["--max-memory", "much"], "'--max-memory'"),
        (["--log-level", "loud"], "must be one of debug, info, warning, error, got 'loud'"),
    ],
)
def test_options_that_do_not_work_are_told(more: list[str], says: str) -> None:
    assert says in refusal(run(*more))


@pytest.mark.parametrize("missing", ["--gateway", "--token-file"])
def test_what_is_required_is_told(missing: str) -> None:
    given = {"--gateway": "127.0.0.1:1", "--token-file": "token"}
    del given[missing]
    arguments = ["worker", "services.py:Good", *(text for pair in given.items() for text in pair)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "250"})

    assert f"Missing option '{missing}'" in refusal(result)


def test_a_service_that_cannot_be_imported_is_told_with_its_traceback() -> None:
    result = run(target="broken.py:Good")
    assert result.exit_code == 2
    assert "raise KeyError('x')" in result.output
    assert "uncork worker: broken.py cannot be imported: KeyError: 'x'" in result.output


def test_a_gateway_that_refuses_is_told(gateway: FakeTcpGateway) -> None:
    def talk() -> None:
        newcomer = gateway.accept()
        newcomer.send(CHALLENGE)
        newcomer.application()
        newcomer.send(Refusal(reason="token", message="the tokens differ"))
        newcomer.close()

    gateway.during(talk)
    says = refusal(run(gateway=gateway.address))
    assert says.endswith(f"uncork worker: {gateway.address}: the tokens differ")


@pytest.mark.parametrize("more", [[], ["--node", "gpu-1"]])
def test_a_setup_that_fails_ends_the_worker_with_1(gateway: FakeTcpGateway, more: list[str]) -> None:
    """The gateway learns of it, and the name of the machine."""

    def talk() -> list[Message]:
        worker, _ = gateway.admit()
        said = [frame.message for frame in worker.rest()]
        worker.close()
        return said

    talking = gateway.during(talk)
    result = run(*more, gateway=gateway.address, target="services.py:Bad")

    assert result.exit_code == 1
    assert 'raise ValueError("no model")' in result.output
    assert "uncork worker: setup failed: ValueError: no model" in result.output
    hello, failed = talking.result()
    assert isinstance(hello, Hello)
    assert isinstance(failed, Failed)
    assert hello.host == "gpu-1" if more else hello.host
