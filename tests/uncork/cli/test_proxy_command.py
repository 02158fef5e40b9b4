"""What ``uncork proxy`` makes of its options and of what it imports, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
import yaml
from typer.testing import CliRunner, Result

from tests.expected import check_texts
from uncork.cli.app import app
from uncork.cli.proxy import command
from uncork.cli.proxy.options import ProxyOptions
from uncork.server import listeners
from uncork.server.credentials import files_of
from uncork.server.listeners import Listeners
from uncork.server.server_options import ServerOptions
from uncork_workers.extras import install_command

URL = "http://127.0.0.1:1"
OFF = {"max_batch_size": 0, "max_batch_time": 0.25}


@pytest.fixture(autouse=True)
def nothing_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends after its banner; the environment imports nothing."""
    monkeypatch.setattr(command, "serve_until_signal", end_at_once)
    for name in ("SIZE", "TIME"):
        monkeypatch.delenv(f"MLSERVER_MODEL_MAX_BATCH_{name}", raising=False)


async def end_at_once(
    front: object,
    listeners: Listeners,
    *,
    announcing: Coroutine[Any, Any, None],
    options: Callable[[], ServerOptions],
    close: Callable[[asyncio.Event], Awaitable[None]],
    reload: Callable[[], None],
) -> int:
    announced = asyncio.create_task(announcing)
    await asyncio.sleep(0)
    announced.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await announced
    await close(asyncio.Event())
    return 0


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["proxy", "--port", "0", *map(str, arguments)])


def banner(*arguments: object) -> str:
    result = run(URL, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def model_settings(folder: Path, settings: Any) -> Path:
    file = folder / "model-settings.json"
    file.write_text(json.dumps(settings))
    return file


def inference_service(folder: Path, predictor: Any) -> Path:
    file = folder / "service.yaml"
    file.write_text(yaml.safe_dump({"kind": "InferenceService", "spec": {"predictor": predictor}}))
    return file


def test_what_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults are those of KServe's documents; options come before what is imported, one by one."""
    batcher = {"batcher": {"maxBatchSize": 16, "maxLatency": 50}, "timeout": 7}
    size_only, whole, empty = tmp_path / "size", tmp_path / "whole", tmp_path / "empty"
    for folder in (size_only, whole, empty):
        folder.mkdir()
    service = ("--inference-service", inference_service(whole, batcher))
    settings = ("--model-settings", model_settings(size_only, {"max_batch_size": 9}))
    off = ("--model-settings", model_settings(whole, OFF))
    limits = ("--max-batch-size", 8, "--max-latency", 0, "--goal-ms", 40, "--timeout", 2.5)
    said = [
        banner(),
        banner("http://h:2", *limits, "--concurrency", 3, "--policy", "fixed:5", "--protocol", "v2"),
        banner(*service),
        banner(*service, "--max-latency", 20, "--goal-ms", 90),
        banner(*off),
        banner(*off, "--policy", "cork"),
        banner(*off, "--max-batch-size", 8),
    ]
    monkeypatch.setenv("MLSERVER_MODEL_MAX_BATCH_SIZE", "7")
    monkeypatch.setenv("MLSERVER_MODEL_MAX_BATCH_TIME", "0.1")
    said += [banner(*settings), banner(*settings, "--max-batch-size", 3), banner()]
    # Variables of MLServer say nothing of KServe's batcher.
    said.append(banner("--inference-service", inference_service(empty, {"batcher": {}})))
    text = "\n".join(said).replace(str(tmp_path), "")
    text = re.sub(r"^uncork \S+:", "uncork:", text, flags=re.MULTILINE)
    check_texts(Path(__file__).with_name("proxy.txt"), re.sub(r"http://127.0.0.1:\d{2,}", "ADDRESS", text))


@pytest.mark.parametrize("option", ["inference_service", "model_settings", "server_ca", "config"])
def test_files_of_settings_are_watched(option: str) -> None:
    options = ProxyOptions(urls=["http://a:1"], **{option: Path("file")})  # type: ignore[arg-type]

    assert files_of(options) == ["file"]


def test_a_wrong_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = model_settings(tmp_path, {"max_batch_size": 2.5})

    assert refused(URL, "--model-settings", settings) == (
        f"uncork proxy: {settings}: max_batch_size must be a whole number, got 2.5\n"
    )
    monkeypatch.setenv("MLSERVER_MODEL_MAX_BATCH_TIME", "")
    assert "MLSERVER_MODEL_MAX_BATCH_TIME must be a number, got ''" in refused(URL)


def test_a_port_in_use_fails_the_job() -> None:
    """The exit code is 1: nothing is wrong with the options."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(URL, "--port", port)

    assert result.exit_code == 1
    assert result.stderr == (
        f"uncork proxy: cannot listen on 127.0.0.1:{port}: Address already in use by "
        f"{psutil.Process().name()} (process {os.getpid()}); choose another --port\n"
    )


@pytest.mark.parametrize("missing", ["grpcio", "hpack", "protobuf"])
def test_servers_that_speak_grpc_need_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == missing:
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(listeners, "version", version)
    for arguments in (["grpc://127.0.0.1:1", "--grpc-port", 0], ["grpcs://127.0.0.1:1"]):
        assert refused(*arguments) == (
            f"uncork proxy: a server of grpc:// requires {missing}; run {install_command('grpc')}\n"
        )
    assert run(URL).exit_code == 0


def test_servers_may_speak_grpc_and_tls(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ca = ("--server-ca", tmp_path / "ca.pem")
    for arguments in (
        ["https://h:1", *ca],
        ["grpcs://h:1", "--grpc-port", 0, *ca],
        ["grpc://h:1", "--grpc-port", 0],
    ):
        said = run(*arguments)
        assert said.exit_code == 0, said.output
        assert ("gRPC 127.0.0.1:" in said.stdout) == str(arguments[0]).startswith("grpc")
