"""The file of what a service has learned: it is for the same model alone, and no fault of it does harm."""

import asyncio
import json
import stat
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from tests.loops import until
from uncork.server.options import ServeOptions
from uncork.server.running import kept_estimates
from uncork.server.running.kept_estimates import KeptEstimates
from uncork_gateway.services.served_service import ServedService

LEARNED = {"predict": [(1.0, 0.0123), (64.0, 0.25)]}


def served(learned: Mapping[str, object] = LEARNED, *, model: str = "m") -> ServedService:
    return cast(ServedService, SimpleNamespace(events=SimpleNamespace(model=model), learned=lambda: learned))


def options(folder: Path, **values: Any) -> ServeOptions:
    return ServeOptions(state_folder=folder / "state", target=["service.py:Iris"], **values)


async def recalled(folder: Path, *, model: str = "m", name: str = "", **values: Any) -> object:
    kept = KeptEstimates(name, options(folder, **values))
    await kept.read()
    return kept.of(model)


def file_in(folder: Path) -> Path:
    [file] = (folder / "state").glob("*.json")
    return file


async def test_the_next_server_recalls_what_this_one_has_learned(tmp_path: Path) -> None:
    await KeptEstimates("", options(tmp_path)).write(served())

    assert await recalled(tmp_path) == LEARNED
    assert file_in(tmp_path).name.startswith("iris-")
    assert stat.S_IMODE(file_in(tmp_path).stat().st_mode) == 0o600


async def test_another_model_recalls_nothing(tmp_path: Path) -> None:
    """Other code, or other variables of its workers; a goal makes no difference."""
    await KeptEstimates("", options(tmp_path)).write(served())

    assert await recalled(tmp_path, model="other") == {}
    assert await recalled(tmp_path, environment=["MODEL=large"]) == {}
    assert await recalled(tmp_path, mb_max_latency=7.0) == LEARNED


async def test_a_server_outlives_the_removal_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during an upgrade: its version cannot be looked up then."""

    def gone(name: str) -> NoReturn:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", gone)
    await KeptEstimates("", options(tmp_path)).write(served())

    assert await recalled(tmp_path) == LEARNED


async def test_each_service_has_a_file(tmp_path: Path) -> None:
    for name in ("a", "b@2"):
        await KeptEstimates(name, options(tmp_path)).write(served({name: LEARNED["predict"]}))

    assert await recalled(tmp_path, name="a") == {"a": LEARNED["predict"]}
    assert await recalled(tmp_path, name="b@2") == {"b@2": LEARNED["predict"]}


async def test_the_file_has_digests_and_numbers_alone(tmp_path: Path) -> None:
    await KeptEstimates("", options(tmp_path, environment=["TOKEN=secret"])).write(served())

    content = json.loads(file_in(tmp_path).read_text())
    assert content.keys() == {"model", "apis", "version"}
    assert len(content["model"]) == 64
    assert "secret" not in file_in(tmp_path).read_text()


async def test_it_is_written_only_when_something_has_changed(tmp_path: Path) -> None:
    """To three digits; a reload with other code does not make what was learned from the old code its own."""
    kept = KeptEstimates("", options(tmp_path))
    await kept.write(served({}))
    assert not (tmp_path / "state").exists()

    await kept.write(served())
    file_in(tmp_path).unlink()
    await kept.write(served({"predict": [(1.0, 0.012300001), (64.0, 0.25)]}))
    await kept.write(served(model="new code"))
    assert list((tmp_path / "state").iterdir()) == []

    await kept.write(served({"predict": [(1.0, 0.0124), (64.0, 0.25)]}, model="new code"))
    assert await recalled(tmp_path, model="new code") == {"predict": [(1.0, 0.0124), (64.0, 0.25)]}


async def test_it_is_written_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a server that is killed loses little; here it does not wait for a minute."""
    monkeypatch.setattr(kept_estimates, "_EVERY_S", 0.0)
    learned = dict(LEARNED)
    keeping = asyncio.create_task(KeptEstimates("", options(tmp_path)).keep(served(learned)))
    await until(lambda: (tmp_path / "state").exists() and any((tmp_path / "state").glob("*.json")))
    learned["more"] = [(1.0, 0.5)]
    await until(lambda: "more" in file_in(tmp_path).read_text())
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)

    assert await recalled(tmp_path) == learned


async def test_a_server_that_learns_nothing_keeps_the_file(tmp_path: Path) -> None:
    await KeptEstimates("", options(tmp_path)).write(served())
    kept = KeptEstimates("", options(tmp_path))
    await kept.read()
    await kept.write(served({}))

    assert await recalled(tmp_path) == LEARNED


GOOD = {"model": "m", "version": 1, "apis": {"predict": [[1, 0.5]]}}
WRONG = {
    "empty": "",
    "truncated": json.dumps(GOOD)[:-5],
    "no object": "[]",
    "another version": json.dumps({**GOOD, "version": 2}),
    "no model": json.dumps({**GOOD, "model": None}),
    "no numbers": json.dumps({**GOOD, "apis": {"predict": [["1", "2"]]}}),
    "NaN": json.dumps({**GOOD, "apis": {"predict": [[1, float("nan")]]}}),
    "infinity": '{"model": "m", "version": 1, "apis": {"predict": [[1, 1e999]]}}',
    "negative": json.dumps({**GOOD, "apis": {"predict": [[1, -0.5]]}}),
    "no rows": json.dumps({**GOOD, "apis": {"predict": [[0, 0.5]]}}),
    "huge": json.dumps({**GOOD, "apis": {"predict": [[1e300, 0.5]]}}),
    "many": json.dumps({**GOOD, "apis": {"predict": [[1, 0.5]] * 3}}),
    "deep": '{"other": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no UTF-8": b"\xff\xfe{}",
    "300 KB": json.dumps({**GOOD, "more": "x" * 300_000}),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
async def test_a_wrong_file_is_said_once_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | bytes
) -> None:
    await KeptEstimates("", options(tmp_path)).write(served())
    file_in(tmp_path).write_bytes(content if isinstance(content, bytes) else content.encode())

    kept = KeptEstimates("", options(tmp_path))
    await kept.read()
    await kept.read()

    assert kept.of("m") == {}
    [line] = caplog.records
    assert line.getMessage().startswith("batch times must be learned anew after each start: ")
    assert file_in(tmp_path).name in line.getMessage()
    assert len(line.getMessage()) < 500
    await kept.write(served())
    assert await recalled(tmp_path) == LEARNED


async def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file")
    kept = KeptEstimates("", options(tmp_path))
    await kept.read()
    await kept.write(served())
    await kept.write(served({"predict": [(2.0, 1.0)]}))

    [line] = caplog.records
    assert "Set --state-folder to a folder of this user alone, or --no-state" in line.getMessage()


async def test_what_is_too_large_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = {f"api_{number}": LEARNED["predict"] for number in range(10_000)}
    await KeptEstimates("", options(tmp_path)).write(served(many))

    assert not (tmp_path / "state").exists()
    assert "the estimates of 10000 APIs take more than 262144 bytes" in caplog.text


async def test_without_a_home_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    kept = KeptEstimates("", ServeOptions(target=["service.py:Iris"]))
    await kept.read()
    await kept.write(served())

    assert caplog.text.count("Could not determine home directory") == 1


@pytest.mark.parametrize(
    ("given", "used"), [("{tmp}/xdg", "xdg"), ("relative", "home/.local/state"), ("", "home/.local/state")]
)
async def test_the_usual_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, used: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", given.format(tmp=tmp_path))
    await KeptEstimates("", ServeOptions(target=["service.py:Iris"])).write(served())

    assert len(list((tmp_path / used / "uncork").iterdir())) == 1
