"""The services of a command line and a configuration file: their names, and the options of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.uncork.config.asking import options_of
from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork.server.services import ONLY, about, errors_of, services_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "uncork.toml"


def services(
    *arguments: object, file: Path | None = None, text: str = "", **environment: str
) -> dict[str, ServeOptions]:
    config: tuple[object, ...] = ()
    if file is not None:
        file.write_text(text)
        config = ("--config", file)
    return services_of(options_of("serve", *arguments, *config, environment=environment))


@pytest.mark.parametrize(
    "target", ["a.py:Digits", "pkg.mod:Svc", "/a/b=c/x.py:Svc", "./b=c.py:Svc", "a\\b=c.py:S"]
)
def test_one_target_is_the_only_service_and_has_no_name(target: str) -> None:
    [(name, options)] = services(target).items()
    assert (name, options.target, options.all_workers) == (ONLY, [target], 0)


def test_without_a_target_there_is_one_service_too() -> None:
    assert list(services("--workers", "0")) == [ONLY]


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (("a.py:Digits", "b.py:Wine"), {"digits": "a.py:Digits", "wine": "b.py:Wine"}),
        (("pkg.mod:Digits", "red=b.py:Wine"), {"digits": "pkg.mod:Digits", "red": "b.py:Wine"}),
        (("one=pkg.mod:Svc",), {"one": "pkg.mod:Svc"}),
        (("one=/a/b=c/x.py:Svc",), {"one": "/a/b=c/x.py:Svc"}),
        (("/a/b=c/x.py:Svc", "./b=c.py:T_2"), {"svc": "/a/b=c/x.py:Svc", "t_2": "./b=c.py:T_2"}),
        (("a.py:Digits", "old-digits=a.py:Digits"), {"digits": "a.py:Digits", "old-digits": "a.py:Digits"}),
    ],
)
def test_names_are_those_of_the_classes_unless_they_are_given(
    targets: tuple[str, ...], named: dict[str, str]
) -> None:
    found = services(*targets)
    assert {name: one.service for name, one in found.items()} == named


def test_services_of_the_command_line_come_before_those_of_the_file(file: Path) -> None:
    """A target on the command line replaces that of the file; other settings of its table stay."""
    text = "[services.wine]\ntarget = 'w.py:W'\n[services.digits]\ntarget = 'old.py:Digits'\nworkers = 3"
    found = services("new.py:Digits", file=file, text=text)

    assert {name: (one.service, one.workers) for name, one in found.items()} == {
        "digits": ("new.py:Digits", "3"),
        "wine": ("w.py:W", "1"),
    }
    assert found["digits"].sources["target"].name == "target"
    assert found["wine"].sources["target"].name == f"{file}: services.wine.target"


def test_targets_can_stand_in_a_variable_and_at_the_top_of_the_file(file: Path) -> None:
    assert list(services(UNCORK_TARGET="a.py:A two=b.py:B")) == ["a", "two"]
    text = "target = ['a.py:A', 'two=b.py:B']\n[services.two]\ntarget = 'c.py:C'"
    assert [one.service for one in services(file=file, text=text).values()] == ["a.py:A", "c.py:C"]


def test_model_files_have_the_names_of_their_files() -> None:
    found = services("models/My-iris_2.onnx", "other=b.onnx", "c.py:C")

    assert {name: one.service for name, one in found.items()} == {
        "myiris2": "models/My-iris_2.onnx",
        "other": "b.onnx",
        "c": "c.py:C",
    }


PLACES = """
workers = 2
policy = "aimd"
[services.a]
target = "a.py:A"
workers = 3
[services.b]
target = "b.py:B"
[services.b.api.predict]
policy = "none"
"""


def test_the_command_line_comes_before_the_environment_before_the_own_table_before_the_top(
    file: Path,
) -> None:
    def workers(*arguments: object, **environment: str) -> dict[str, tuple[str, str]]:
        found = services(*arguments, file=file, text=PLACES, **environment)
        return {name: (one.workers, one.sources["workers"].name) for name, one in found.items()}

    assert workers() == {
        "a": ("3", f"{file}: services.a.workers"),
        "b": ("2", f"{file}: workers"),
    }
    assert workers(UNCORK_WORKERS="4") == dict.fromkeys("ab", ("4", "UNCORK_WORKERS"))
    assert workers("--workers", "5", UNCORK_WORKERS="4") == dict.fromkeys("ab", ("5", "--workers"))


def test_settings_of_apis_follow_the_same_order(file: Path) -> None:
    def policies(*arguments: object) -> dict[str, str]:
        found = services(*arguments, file=file, text=PLACES)
        return {
            name: [one.value for one in options.overrides if one.applies_to("predict")][-1]
            for name, options in found.items()
        }

    assert policies() == {"a": "aimd", "b": "none"}
    assert policies("--policy", "cork") == {"a": "cork", "b": "cork"}


def test_workers_share_the_cores_with_those_of_all_services(file: Path) -> None:
    text = "[services.a]\ntarget = 'a.py:A'\nworkers = '2-6'\n[services.b]\ntarget = 'b.py:B'\nworkers = 3"
    assert {one.all_workers for one in services(file=file, text=text).values()} == {9}


def test_a_single_service_with_a_name_can_have_what_several_cannot_share(file: Path) -> None:
    text = "worker_port = 1\n[services.a]\ntarget = 'a.py:A'\n[services.a.api.predict]\ntimeout = 2\n"
    [(name, options)] = services(
        file=file, text=f"{text}[api.predict]\ntimeout = 1", UNCORK_API_OTHER_TIMEOUT="3"
    ).items()
    assert (name, options.worker_port) == ("a", 1)
    assert [(one.api, one.value) for one in options.overrides] == [
        ("predict", 1),
        ("predict", 2),
        ("OTHER", 3),
    ]


def test_each_of_several_services_can_have_a_worker_port(file: Path) -> None:
    text = "[services.a]\ntarget = 'a.py:A'\nworker-port = 1\n[services.b]\ntarget = 'b.py:B'"
    found = services(file=file, text=text)
    assert [one.worker_port for one in found.values()] == [1, None]


def test_errors_of_a_service_begin_with_its_name() -> None:
    def fail(name: str) -> str:
        with pytest.raises(WrongUsage) as caught, errors_of(name):
            raise WrongUsage("no GPU")
        return str(caught.value)

    assert (fail("wine"), fail(ONLY)) == ("wine: no GPU", "no GPU")
    assert (about("wine", 1), about(ONLY, 1)) == ("wine: 1", "1")
