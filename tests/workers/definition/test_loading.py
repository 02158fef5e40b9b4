"""Loading of a service class from a target."""

import sys
from pathlib import Path

import pytest

from uncork_workers.definition.loading import TargetError, load_service
from uncork_workers.definition.service import Service, find_apis

GOOD = """
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import (Service, api)

class Echo(Service):
    @api(input=Json())
    def echo(self, items):
        return items
"""
USELESS = """
from uncork_workers.definition.service import Service
class Empty(Service): pass
number = 5
nothing = None
"""
PIP = f"{sys.executable} -m pip install"


def refusal(target: str) -> TargetError:
    with pytest.raises(TargetError) as caught:
        load_service(target)
    return caught.value


def write(project: Path, name: str, text: str) -> str:
    file = project / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return name


FILES = {
    "echo.py": GOOD,
    "sub/service.py": GOOD,
    "sub/__init__.py": "",
    "made.py": f"{GOOD}\necho = Echo()\n",
    "useless.py": GOOD + USELESS,
    "empty.py": USELESS,
    "imports.py": "from uncork_workers.definition.service import Service",
    "late.py": f"{GOOD}\n    async def setup(self): ...\n",
    "wrong.py": GOOD.replace("input=Json()", "input=Json(), mb_max_latency=-1"),
    "unready.py": "class Echo(",
    "plain.py": "number = 5",
    "model.pt": "",
    "its_a_folder.py/file": "",
}
FORM = "is not of the form MODULE:SERVICE or FILE.py:SERVICE"
NOWHERE = "is neither in the current directory nor installed"
NO_API = "has no API; decorate a method with @api(input=...)"
NEGATIVE = "API 'echo': mb_max_latency must be a positive number of milliseconds, got -1 (line 6 of wrong.py)"
REFUSED = {
    **{
        target: f"{target!r} {FORM}"
        for target in (
            "",
            "x",
            "x.py",
            ":Echo",
            "x:",
            "a:b c",
            "a:1",
            "a:B.C",
            "a: B",
            "a:b:",
            "unready.py",
        )
    },
    "plain.py": f"'plain.py' {FORM}",
    ".": f"'.' {FORM}; the folder has no config.json, so it is no model of transformers",
    "echo.py": f"'echo.py' {FORM}; write echo.py:Echo",
    "echo.py:Echo:echo": "'echo.py:Echo:echo' names more than a service; write echo.py:Echo",
    "model.pt": f"'model.pt' {FORM}; the names of model files end in .onnx, .joblib, .pkl, .json, .ubj, .txt"
    "; for others, write a Python file with a class of uncork.Service whose setup() loads model.pt",
    "missing.py:Echo": "file missing.py does not exist",
    "its_a_folder.py:Echo": "file its_a_folder.py does not exist",
    "sub/servise.py:Echo": "file sub/servise.py does not exist; did you mean sub/service.py?",
    "sub/service:Echo": f"module 'sub/service' {NOWHERE}; did you mean sub/service.py?",
    "no_such_module:Echo": f"module 'no_such_module' {NOWHERE}",
    "no_such_module.inner:Echo": f"module 'no_such_module' {NOWHERE}",
    "sub.rest:Echo": f"module 'sub.rest' {NOWHERE}",
    "made.py:echo": "made.py: echo is an instance of Echo; name the class itself; available services: Echo",
    **{
        f"useless.py:{name}": f"useless.py has no {name!r}; available services: Echo, Empty"
        for name in ("Other", "nothing", "_")
    },
    **{
        f"useless.py:{name}": f"useless.py has no {name!r}; did you mean {meant}?"
        for name, meant in (("echo_", "Echo"), ("Ecco", "Echo"), ("EMPTY", "Empty"))
    },
    **{
        f"useless.py:{name}": f"useless.py: {name} is not a subclass of uncork.Service; available services: "
        "Echo, Empty"
        for name in ("number", "api", "Json")
    },
    "imports.py:Echo": "imports.py has no 'Echo'; it defines no service",
    "empty.py:Empty": f"empty.py: service Empty {NO_API}",
    "empty:Empty": f"empty: service Empty {NO_API}",
    "empty:Service": f"empty: service Service {NO_API}",
    "late.py:Echo": "late.py: service Echo: setup must be a plain method, not async; run async code in it "
    "with asyncio.run(...)",
    "wrong.py:Echo": f"wrong.py: {NEGATIVE}",
    "wrong:Echo": f"wrong: {NEGATIVE}",
}


@pytest.mark.parametrize(("target", "says"), REFUSED.items())
def test_a_wrong_target_is_explained_without_a_traceback(project: Path, target: str, says: str) -> None:
    for name, text in FILES.items():
        write(project, name, text)

    error = refusal(target)

    assert str(error) == says
    assert error.__cause__ is None


@pytest.mark.parametrize("where", ["service.py", "deep/service.py", "with:colon/service.py"])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_file_is_loaded_as_the_module_of_its_name(project: Path, where: str, *, absolute: bool) -> None:
    file = write(project, where, GOOD)
    service = load_service(f"{project / file if absolute else file}:Echo")

    assert issubclass(service, Service)
    assert [definition.name for definition in find_apis(service)] == ["echo"]
    assert service.__module__ == "service"
    assert sys.modules["service"].__dict__["Echo"] is service


def test_a_file_can_import_what_lies_beside_it(project: Path) -> None:
    write(project, "sub/beside_it.py", GOOD)
    write(project, "sub/service.py", "from beside_it import Echo")

    assert load_service("sub/service.py:Echo").__name__ == "Echo"


def test_a_module_is_loaded(project: Path) -> None:
    write(project, "my_services/inner.py", GOOD)
    write(project, "top_service.py", GOOD)

    assert load_service("top_service:Echo").__module__ == "top_service"
    assert load_service("my_services.inner:Echo").__module__ == "my_services.inner"


@pytest.mark.parametrize("target", ["broken.py:Echo", "broken:Echo"])
@pytest.mark.parametrize(
    ("code", "cause", "message"),
    [
        ("1 / 0", ZeroDivisionError, "ZeroDivisionError: division by zero"),
        ("def f(:", SyntaxError, "SyntaxError: "),
        ("import no_such_module_xyz", ModuleNotFoundError, "No module named 'no_such_module_xyz'"),
        (
            "import no_such_module_xyz",
            ModuleNotFoundError,
            f"; install it for the Python that runs the workers: {PIP} no_such_module_xyz",
        ),
        (
            "from uncork import api\n@api\ndef f(self, rows): ...",
            TypeError,
            "; write @api(input=Json()), or another adapter",
        ),
        ("from json import no_such_name", ImportError, "ImportError: cannot import name"),
        ("from broken import Echo", ImportError, "ImportError: cannot import name 'Echo' from"),
        ("raise SystemExit('bye')", SystemExit, "SystemExit: bye"),
        ("import sys; sys.exit(3)", SystemExit, "SystemExit: 3"),
    ],
)
def test_what_the_users_code_raises_is_kept_as_the_cause(
    project: Path, target: str, code: str, cause: type[BaseException], message: str
) -> None:
    place = target.partition(":")[0]
    write(project, "broken.py", code)

    error = refusal(target)

    assert str(error).startswith(f"{place} cannot be imported: ")
    assert message in str(error)
    assert type(error.__cause__) is cause
    assert error.__cause__.__traceback__ is not None


def test_an_interrupt_is_not_a_wrong_target(project: Path) -> None:
    """Ctrl-C during a long import ends the program."""
    write(project, "interrupted.py", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        load_service("interrupted.py:Echo")
