"""Load the service of a target: ``module:Service``, ``path/file.py:Service`` or ``path/model.onnx``."""

import ast
import importlib
import importlib.util
import sys
import traceback
from difflib import get_close_matches
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from uncork_workers.definition.checks import message_of
from uncork_workers.definition.hints import hint_on_import
from uncork_workers.definition.models.loading import model_files, service_of_model
from uncork_workers.definition.models.targets import KINDS, is_model
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.wire.values import DefinitionError

_INSTALLED = {"site-packages", "dist-packages"}


class TargetError(Exception):
    """The target names no service that can be served; the message says why."""


def load_service(target: str, *, trust_pickle: bool = False) -> type[Service]:
    """Import the service class that ``target`` names, or make one from a model file.

    Args:
        target: MODULE:SERVICE, FILE.py:SERVICE or a model file.
        trust_pickle: whether to load model files that can run any code.

    Raises:
        TargetError: if there is no such module, file or class, or it is not a valid service. If the import
            raised, that exception is the cause (``__cause__``).
    """
    if is_model(target):
        return _load_model(target, trust_pickle=trust_pickle)
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise TargetError(
            f"{target!r} is not of the form MODULE:SERVICE or FILE.py:SERVICE{_example(target)}"
        )
    shorter, colon, second = place.rpartition(":")
    if colon and second.isidentifier():
        raise TargetError(f"{target!r} names more than a service; write {shorter}:{second}")
    module = _load(place)
    service = getattr(module, name, None)
    if service is None:
        raise TargetError(f"{place} has no {name!r}; {_services_of(module, like=name)}")
    if not isinstance(service, type) or not issubclass(service, Service):
        raise TargetError(f"{place}: {_no_service(name, service)}; {_services_of(module)}")
    try:
        describe_service(service)
    except DefinitionError as error:
        raise TargetError(f"{place}: {error}") from None
    return service


def _load_model(target: str, *, trust_pickle: bool) -> type[Service]:
    try:
        service = service_of_model(target, trust_pickle=trust_pickle)
        describe_service(service)
    except DefinitionError as error:
        raise TargetError(f"{target}: {error}") from None
    return service


def _load(place: str) -> ModuleType:
    try:
        return _load_file(place) if place.endswith(".py") else _load_module(place)
    except TargetError:
        raise
    except DefinitionError as error:
        raise TargetError(f"{place}: {error}{_line_of(error)}") from None
    except KeyboardInterrupt:
        raise  # Ctrl-C while `uncork worker` imports the service
    except BaseException as error:
        hint = hint_on_import(error)
        raise TargetError(
            f"{place} cannot be imported: {type(error).__name__}: {message_of(error)}"
            f"{'; ' if hint else ''}{hint}"
        ) from error


def _load_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        existing = [file.name for file in path.parent.glob("*.py") if file.is_file()]
        near = get_close_matches(path.name, existing, n=1)
        hint = f"; did you mean {Path(place).with_name(near[0])}?" if near else ""
        raise TargetError(f"file {place} does not exist{hint}")
    # As when Python runs the file: it can import modules in its folder.
    sys.path.insert(0, str(path.parent))
    name = _module_name(place)
    # A link may lead to a file with another suffix, for which Python has no loader.
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As the import system does. Otherwise, errors of circular imports lack Python's explanation.
    vars(spec)["_initializing"] = True
    try:
        loader.exec_module(module)
    finally:
        vars(spec)["_initializing"] = False
    return module


def _module_name(place: str) -> str:
    """Return the name of the module of a target: for a file, that of the file to which links lead."""
    return Path(place).resolve().stem if place.endswith(".py") else place


def _load_module(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            hint = f"; did you mean {place}.py?" if Path(f"{place}.py").is_file() else ""
            raise TargetError(
                f"module {error.name!r} is neither in the current directory nor installed{hint}"
            ) from None
        raise


def _services_of(module: ModuleType, *, like: str = "") -> str:
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Service) and value is not Service
    ]
    by_letters = {name.lower(): name for name in names}
    near = get_close_matches(like.lower(), by_letters, n=1)
    if near:
        return f"did you mean {by_letters[near[0]]}?"
    return f"available services: {', '.join(names)}" if names else "it defines no service"


def _no_service(name: str, value: object) -> str:
    if isinstance(value, Service):
        return f"{name} is an instance of {type(value).__name__}; name the class itself"
    return f"{name} is not a subclass of uncork.Service"


def _example(target: str) -> str:
    """Suggest the first class of a file whose target lacks one, or a service for another file."""
    if target and Path(target).is_dir():
        return "; the folder has no config.json, so it is no model of transformers"
    if Path(target).is_file() and not target.endswith(".py"):
        return (
            f"; the names of model files end in {', '.join(KINDS)}; for others, write a Python file with a "
            f"class of uncork.Service whose setup() loads {target}"
        )
    try:
        tree = ast.parse(Path(target).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    name = next((node.name for node in tree.body if isinstance(node, ast.ClassDef)), None)
    return f"; write {target}:{name}" if name else ""


def _line_of(error: DefinitionError) -> str:
    ours = str(Path(__file__).parents[1])
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<"))
    ]
    return f" (line {lines[-1].lineno} of {Path(lines[-1].filename).name})"


def service_files(target: str) -> list[str]:
    """Return the file of an imported service, also as a target that is a link names it, and all imported
    modules of its project.

    The project is the folder of the service's file, or the folder that contains its top-level package.
    Installed packages are excluded, unless the service itself is in one: then its files are the project.
    A model consists of its own files.
    """
    if is_model(target):
        return model_files(target)
    place = target.rpartition(":")[0]
    name = _module_name(place)
    own = getattr(sys.modules[name], "__file__", None)
    if own is None:
        return []
    root = _root(name, Path(own))
    files = {own}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _belongs(Path(file), root):
            files.add(file)
    if place.endswith(".py"):
        files.add(str(Path(place).absolute()))  # a link changes when it leads to another file
    return sorted(files)


def _root(module: str, path: Path) -> Path:
    if path.stem == module:
        return path.parent
    root = path.parents[module.count(".") + (path.stem == "__init__")]
    return root / module.partition(".")[0] if root.name in _INSTALLED else root


def _belongs(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not _INSTALLED.intersection(path.relative_to(root).parts)
