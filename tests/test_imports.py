"""Which room and folder may import which: walks the imports of every module."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {
    "uncork": ROOT / "uncork",
    "uncork_gateway": ROOT / "gateway/uncork_gateway",
    "uncork_dispatcher": ROOT / "dispatcher/uncork_dispatcher",
    "uncork_workers": ROOT / "workers/uncork_workers",
    "uncork_loadtests": ROOT / "loadtests/uncork_loadtests",
    "benchmarks": ROOT / "benchmarks",
}
ALLOWED = {
    "uncork": {"uncork", "uncork_gateway", "uncork_workers", "uncork_dispatcher", "uncork_loadtests"},
    "uncork_gateway": {
        "uncork_gateway",
        "uncork_dispatcher",
        "uncork_workers.extras",
        "uncork_workers.wire",
    },
    # The alarm is the dispatcher's precise timer, which a generator needs as well.
    "uncork_loadtests": {
        "uncork_loadtests",
        "uncork_dispatcher.advice",
        "uncork_dispatcher.wording",
        "uncork_dispatcher.simulator",
        "uncork_dispatcher.alarm",
    },
    "uncork_workers": {"uncork_workers", "uncork_dispatcher.learning"},
    "uncork_dispatcher": {"uncork_dispatcher"},
    "benchmarks": set(ROOMS),
}
# The order inside a room, lowest first: a module imports its own folder and what stands above it in the list.
LAYERS = {
    "uncork_dispatcher": [
        "wording",
        *("advice_texts", "advice"),
        "learning",
        "loop_plan",
        "policies",
        "rules",
        "stats",
        "requests",
        "workers",
        "actions",
        "errors",
        "capacity",
        "api",
        "scheduling",
        "core",
        "jobs",
        "callers",
        "tasks",
        "alarm",
        "asyncio_dispatcher",
        "simulator",
    ],
    "uncork_gateway": [
        *("headers", "errors", "auth", "service_log", "telemetry", "interfaces"),
        *("versions", "protocols", "codecs", "dialects", "connection", "backends", "requests"),
        *("settings", "readiness", "repository", "pages", "batching", "grpc", "front_end", "mounted"),
        *("services", "gateway", "proxy"),
    ],
    "uncork": [
        "adapters",
        "outputs",
        "openai",
        "batched_functions",
        "config",
        "server",
        "mounting",
        "testing",
        "cli",
        "__main__",
    ],
    "uncork_loadtests": [
        "traffic",
        "servers",
        "generator",
        "targets",
        "reports",
        "measurement",
        "compare",
        "tuning",
        "locust",
    ],
    "uncork_workers": [
        "extras",
        "plural",
        "cores",
        "memory",
        "terminal_logs",
        "wire",
        "definition",
        "process",
        "supervision",
        "ray",
        "__main__",
    ],
}
# What the dispatcher's core must do without. Its shell is not the core.
IMPURE = {"asyncio", "time", "datetime", "random", "secrets", "logging", "threading", "socket", "http"}
SHELL = {"__init__.py", "alarm.py", "asyncio_dispatcher.py", "callers.py", "tasks.py"}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def imported(file: Path) -> list[str]:
    """Full names of the modules that a file imports."""
    names = []
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            names.append(node.module)
    return names


def is_within(module: str, packages: set[str]) -> bool:
    """Whether a module is one of the packages or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_it_may(room: str) -> None:
    files = list(ROOMS[room].rglob("*.py"))
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in files
        for module in imported(file)
        if is_within(module, set(ROOMS)) and not is_within(module, ALLOWED[room])
    ]

    assert files
    assert wrong == []


def test_the_products_tests_do_not_import_benchmarks() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "tests").rglob("*.py")
        if "benchmarks" in file.read_text()
        for module in imported(file)
        if is_within(module, {"benchmarks"})
    ]

    assert wrong == []


@pytest.mark.parametrize("room", LAYERS)
def test_a_room_imports_downwards(room: str) -> None:
    layers = LAYERS[room]
    wrong = []
    for file in ROOMS[room].rglob("*.py"):
        layer = file.relative_to(ROOMS[room]).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        for module in imported(file):
            package, _, rest = module.partition(".")
            if package == room and rest and layers.index(rest.partition(".")[0]) > layers.index(layer):
                wrong.append(f"{file.relative_to(ROOT)} imports {module}")

    assert wrong == []


def name_of(file: Path, room: str) -> str:
    parts = file.relative_to(ROOMS[room]).with_suffix("").parts
    return ".".join([room, *(part for part in parts if part != "__init__")])


def imported_on_load(file: Path) -> Iterator[str]:
    """Full names that a file imports when it is loaded or type-checked, modules and what is in them."""
    nodes = list(parsed(file).body)
    for node in nodes:
        if isinstance(node, ast.If):
            nodes += node.body  # TYPE_CHECKING
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_no_import_cycle(room: str) -> None:
    """Not even one of types, or one that happens to work in the order in which modules are loaded."""
    files = {name_of(file, room): file for file in ROOMS[room].rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        modules = {full if full in files else full.rpartition(".")[0] for full in imported_on_load(file)}
        graph[name] = (modules & files.keys()) - {name}

    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_the_core_imports_no_clock_loop_or_log() -> None:
    """The core of the dispatcher is pure: time comes in as an argument."""
    room = ROOMS["uncork_dispatcher"]
    files = [
        file
        for file in room.rglob("*.py")
        if file.name not in SHELL and not file.is_relative_to(room / "simulator")
    ]
    wrong = [
        f"{file.name} imports {module}"
        for file in files
        for module in imported(file)
        if is_within(module, IMPURE)
    ]

    assert files
    assert wrong == []


def test_the_core_does_not_import_its_shell() -> None:
    core = [file for file in ROOMS["uncork_dispatcher"].rglob("*.py") if file.name not in SHELL]
    shell = {"uncork_dispatcher.asyncio_dispatcher"}

    assert [file.name for file in core for module in imported(file) if module in shell] == []


def test_only_policies_import_a_policy() -> None:
    """The rest of the dispatcher knows their interface and their names."""
    room, known = ROOMS["uncork_dispatcher"], "uncork_dispatcher.policies"
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in room.rglob("*.py")
        if not file.is_relative_to(room / "policies")
        for module in imported(file)
        if is_within(module, {known}) and module not in (known, f"{known}.base")
    ]

    assert wrong == []


def test_only_pages_import_the_sentences_of_pages() -> None:
    """What computes states and figures does not know the words for them."""
    status = "uncork_gateway.pages.status"
    names = ("advise", "explain", "names", "slots")
    prose = {f"{status}.{name}" for name in names}
    pages = ROOMS["uncork_gateway"] / "pages"
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for room in ROOMS.values()
        for file in room.rglob("*.py")
        if not file.is_relative_to(pages)
        for module in imported(file)
        if module in prose
    ]

    assert all((pages / f"status/{name}.py").exists() for name in names)
    assert wrong == []


def test_only_the_helper_process_imports_ray() -> None:
    """The gateway must not: Ray ends its process when the head of the cluster is lost."""
    room = ROOMS["uncork_workers"]
    wrong = {
        str(file.relative_to(ROOT))
        for name in ROOMS.keys() - {"benchmarks"}
        for file in ROOMS[name].rglob("*.py")
        if is_within("ray", {module.partition(".")[0] for module in imported(file)})
    }

    assert wrong == {str((room / "ray/cluster.py").relative_to(ROOT))}
