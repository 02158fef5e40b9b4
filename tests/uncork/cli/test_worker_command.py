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
from uncork_workers.definition.service import (Service, api)

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
