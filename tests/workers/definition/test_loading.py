"""Loading of a service class from a target."""

import sys
from pathlib import Path

import pytest

from uncork_workers.definition.loading import TargetError, load_service
from uncork_workers.definition.service import Service, find_apis

GOOD = """
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api

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
WRONG = GOOD.replace("input=Json()", "input=Json(), mb_max_latency=-1")


def refusal(target: str) -> TargetError:
    """Return the error for a target."""
    with pytest.raises(TargetError) as caught:
        load_service(target)
    return caught.value


def write(project: Path, name: str, text: str) -> str:
    """Write a file and return its path as a user would type it."""
    file = project / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return name


@pytest.mark.parametrize("where", ["service.py", "deep/service.py"])
def test_a_file_is_loaded(project: Path, where: str) -> None:
    service = load_service(f"{write(project, where, GOOD)}:Echo")

    assert issubclass(service, Service)
    assert service.__name__ == "Echo"
    assert [definition.name for definition in find_apis(service)] == ["echo"]


def test_a_file_is_loaded_by_its_absolute_path(project: Path) -> None:
    write(project, "with:colon/service.py", GOOD)

    assert load_service(f"{project}/with:colon/service.py:Echo").__name__ == "Echo"


def test_a_file_can_import_what_lies_beside_it(project: Path) -> None:
    write(project, "sub/beside_it.py", GOOD)
    write(project, "sub/service.py", "from beside_it import Echo")

    assert load_service("sub/service.py:Echo").__name__ == "Echo"


def test_the_module_of_a_file_can_be_found_by_name(project: Path) -> None:
    service = load_service(f"{write(project, 'findable.py', GOOD)}:Echo")

    assert sys.modules["findable"].__dict__["Echo"] is service
    assert service.__module__ == "findable"


def test_a_module_is_loaded(project: Path) -> None:
    write(project, "my_services/inner.py", GOOD)
    write(project, "top_service.py", GOOD)

    assert load_service("top_service:Echo").__module__ == "top_service"
    assert load_service("my_services.inner:Echo").__module__ == "my_services.inner"


@pytest.mark.parametrize(
    "target",
    ["", "service", "service.py", ":Echo", "service:", "a:", "a:b c", "a:1", "a:B.C", "a: B", "a:b:"],
)
def test_a_target_has_two_parts(target: str) -> None:
    assert str(refusal(target)) == f"{target!r} is not of the form MODULE:SERVICE or FILE.py:SERVICE"


def test_a_target_with_a_third_part(project: Path) -> None:
    write(project, "service.py", GOOD)

    assert str(refusal("service.py:Echo:echo")) == (
        "'service.py:Echo:echo' names more than a service; write service.py:Echo"
    )


def test_a_model_file_is_no_service(project: Path) -> None:
    write(project, "model.onnx", "")

    assert str(refusal("model.onnx")) == (
        "'model.onnx' is not of the form MODULE:SERVICE or FILE.py:SERVICE; write a Python file with a class "
        "of uncork.Service whose setup() loads model.onnx"
    )


def test_a_circular_import_has_pythons_explanation(project: Path) -> None:
    write(project, "chicken.py", "from egg import Egg\nclass Chicken: pass")
    write(project, "egg.py", "from chicken import Chicken\nclass Egg: pass")

    assert "from partially initialized module 'chicken' (most likely due to a circular import)" in str(
        refusal("chicken.py:Chicken")
    )


def test_a_file_that_is_not_there_is_refused(project: Path) -> None:
    (project / "folder.py").mkdir()

    assert str(refusal("missing.py:Echo")) == "file missing.py does not exist"
    assert str(refusal("folder.py:Echo")) == "file folder.py does not exist"


@pytest.mark.parametrize("module", ["no_such_module_xyz", "no_such_module_xyz.inner", "deep/service"])
def test_a_module_that_is_not_there_is_refused(project: Path, module: str) -> None:
    error = refusal(f"{module}:Echo")

    missing = module.partition(".")[0]
    assert str(error) == f"module {missing!r} is neither in the current directory nor installed"
    assert error.__cause__ is None


def test_a_target_without_a_class(project: Path) -> None:
    form = "is not of the form MODULE:SERVICE or FILE.py:SERVICE"
    write(project, "service.py", GOOD)
    write(project, "unready.py", "class Echo(")
    write(project, "plain.py", "number = 5")

    assert str(refusal("service.py")) == f"'service.py' {form}; write service.py:Echo"
    for target in ("unready.py", "plain.py", "."):
        assert str(refusal(target)) == f"{target!r} {form}"


def test_a_file_that_is_nearly_there(project: Path) -> None:
    write(project, "sub/service.py", GOOD)

    assert (
        str(refusal("sub/servise.py:Echo"))
        == "file sub/servise.py does not exist; did you mean sub/service.py?"
    )
    assert str(refusal("sub/service:Echo")).endswith("nor installed; did you mean sub/service.py?")
    assert str(refusal("servise.py:Echo")) == "file servise.py does not exist"


def test_an_object_is_no_class(project: Path) -> None:
    write(project, "made.py", f"{GOOD}\necho = Echo()\n")

    assert (
        str(refusal("made.py:echo"))
        == "made.py: echo is an instance of Echo; name the class itself; available services: Echo"
    )


def test_a_submodule_that_is_not_there_is_refused(project: Path) -> None:
    write(project, "half_there/__init__.py", "")

    assert str(refusal("half_there.rest:Echo")).startswith("module 'half_there.rest' is neither")


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


@pytest.mark.parametrize("name", ["Other", "nothing", "_"])
def test_a_name_that_is_not_there_is_refused(project: Path, name: str) -> None:
    write(project, "useless.py", GOOD + USELESS)

    assert (
        str(refusal(f"useless.py:{name}")) == f"useless.py has no {name!r}; available services: Echo, Empty"
    )


@pytest.mark.parametrize(("name", "meant"), [("echo_", "Echo"), ("Ecco", "Echo"), ("EMPTY", "Empty")])
def test_a_name_that_is_nearly_there_is_told(project: Path, name: str, meant: str) -> None:
    write(project, "nearly.py", GOOD + USELESS)

    assert str(refusal(f"nearly.py:{name}")) == f"nearly.py has no {name!r}; did you mean {meant}?"


def test_a_file_without_any_service_is_refused(project: Path) -> None:
    write(project, "imports.py", "from uncork_workers.definition.service import Service")

    assert str(refusal("imports.py:Echo")) == "imports.py has no 'Echo'; it defines no service"


@pytest.mark.parametrize("name", ["number", "api", "Json"])
def test_what_is_no_service_is_refused(project: Path, name: str) -> None:
    write(project, "other_things.py", GOOD + USELESS)

    message = str(refusal(f"other_things.py:{name}"))

    assert message == (
        f"other_things.py: {name} is not a subclass of uncork.Service; available services: Echo, Empty"
    )


@pytest.mark.parametrize("target", ["empty.py:Empty", "empty:Empty", "empty:Service"])
def test_a_service_without_api_is_refused(project: Path, target: str) -> None:
    place, _, name = target.partition(":")
    write(project, "empty.py", USELESS)

    error = refusal(target)

    assert str(error) == f"{place}: service {name} has no API; decorate a method with @api(input=...)"
    assert error.__cause__ is None


def test_a_service_that_cannot_be_set_up_is_refused(project: Path) -> None:
    write(project, "late.py", f"{GOOD}\n    async def setup(self): ...\n")

    assert str(refusal("late.py:Echo")).startswith("late.py: service Echo: setup must be a plain method")


@pytest.mark.parametrize("target", ["wrong.py:Echo", "wrong:Echo"])
def test_a_definition_error_has_no_traceback(project: Path, target: str) -> None:
    write(project, "wrong.py", WRONG)

    error = refusal(target)

    place = target.partition(":")[0]
    told = "API 'echo': mb_max_latency must be a positive number of milliseconds, got -1"
    assert str(error) == f"{place}: {told} (line 6 of wrong.py)"
    assert error.__cause__ is None
