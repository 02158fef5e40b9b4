"""``uncork serve --python``: which interpreters can run workers, and what is said of others."""

from __future__ import annotations

import re
import sys
import sysconfig
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.uncork.config.asking import refused
from uncork.config.errors import WrongUsage
from uncork.config.sources import Kind, Source
from uncork.server.options import ServeOptions
from uncork.server.workers.requirements import require_python, require_resources
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.handshake import PROTOCOL


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without packages."""
    folder = tmp_path_factory.mktemp("pythons") / "environment"
    venv.create(folder, symlinks=True)
    return folder


@pytest.fixture
def with_uncork(environment: Path) -> Any:
    """The same virtual environment, with the packages of this one until the end of the test."""
    [packages] = environment.glob("lib/python*/site-packages")
    linked = packages / "linked.pth"
    linked.write_text("\n".join(path for path in sys.path if path))
    yield environment
    linked.unlink()


@pytest.fixture(autouse=True)
def without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter finds its own packages only."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


def complaint(python: object, *environment: str) -> str:
    with pytest.raises(WrongUsage) as caught:
        require_python(ServeOptions(python=str(python), environment=list(environment)))
    return str(caught.value)


def script(folder: Path, text: str) -> Path:
    file = folder / "python"
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_the_interpreter_of_the_server_can_run_workers() -> None:
    require_python(ServeOptions())
    require_python(ServeOptions(python=sys.executable))


def test_a_virtual_environment_is_named_by_its_folder_or_its_interpreter(with_uncork: Path) -> None:
    interpreter = str(with_uncork / "bin/python")
    for name in (str(with_uncork), interpreter):
        options = ServeOptions(python=name)
        assert options.interpreter == interpreter
        require_python(options)


def test_what_the_interpreter_prints_at_its_start_does_not_matter(with_uncork: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello', end='')")
    require_python(ServeOptions(python=str(with_uncork), environment=[f"PYTHONPATH={tmp_path}"]))


def test_an_interpreter_without_uncork_is_refused(environment: Path) -> None:
    assert complaint(environment) == (
        f"--python {environment}: Uncork cannot be imported there (ModuleNotFoundError: No module named "
        f"'uncork_workers'); install uncork=={VERSION} in it"
    )


def test_the_variables_of_the_workers_count(environment: Path) -> None:
    """Uncork may be on a path that only they have."""
    path = ":".join([*filter(None, sys.path), sysconfig.get_path("purelib")])
    require_python(ServeOptions(python=str(environment), environment=[f"PYTHONPATH={path}"]))


def test_an_uncork_with_another_protocol_is_refused(environment: Path, tmp_path: Path) -> None:
    wire = tmp_path / "uncork_workers/wire"
    wire.mkdir(parents=True)
    (wire / "dialing.py").write_text("VERSION = '9.9'")
    (wire / "handshake.py").write_text("PROTOCOL = 99")
    assert complaint(environment, f"PYTHONPATH={tmp_path}") == (
        f"--python {environment}: Uncork 9.9 there has worker protocol 99, this one ({VERSION}) has "
        f"{PROTOCOL}; install uncork=={VERSION} in it"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "#!/bin/sh\nexit 3",
            f"Uncork cannot be imported there (exit code 3); install uncork=={VERSION} in it",
        ),
        (
            "#!/bin/sh\necho no",
            f"Uncork cannot be imported there (exit code 0); install uncork=={VERSION} in it",
        ),
        ("#!/no/such/file", "cannot be run: No such file or directory; give a Python interpreter"),
        ("\x7fELF", "cannot be run: Exec format error; give a Python interpreter"),
    ],
)
def test_what_is_no_interpreter_is_refused(text: str, says: str, tmp_path: Path) -> None:
    python = script(tmp_path, text)
    assert complaint(python) == f"--python {python}: {says}"


def test_a_path_must_name_something_executable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "bin/python").mkdir(parents=True)
    for name in ("file", ".", "nowhere"):
        path = tmp_path / name
        # Lines are broken in a box, wherever a long path makes it necessary.
        told = re.sub(r"[\s│]+", "", refused("serve", "a.py:A", "--python", path))
        assert f"'{path}'isneitheranexecutablePythoninterpreter" in told


def test_each_service_has_its_own_interpreter(with_uncork: Path, tmp_path: Path) -> None:
    """The error names where the wrong one comes from; what runs already is not checked again."""
    sources = {"python": Source(Kind.FILE, "uncork.toml: services.wine.python")}
    missing = ServeOptions(python=str(script(tmp_path, "#!/bin/sh\nexit 3")), sources=sources)
    services = {"digits": ServeOptions(python=str(with_uncork)), "wine": missing}
    warnings: list[str] = []
    says = rf"^uncork.toml: services.wine.python {missing.python}: Uncork cannot be imported"
    with pytest.raises(WrongUsage, match=says):
        require_resources(services, warn=warnings.append)
    require_resources(services, running={"wine": missing}, warn=warnings.append)
    before = {"wine": replace(missing, environment=["A=1"])}
    with pytest.raises(WrongUsage, match=says):
        require_resources(services, running=before, warn=warnings.append)
    assert warnings == []
