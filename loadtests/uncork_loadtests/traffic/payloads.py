"""Sources of requests (files, random rows, a function of the user's) and the comparison of responses."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from uncork_loadtests.traffic.plan import Payload, Plan

Source = Callable[[int], tuple[bytes, bytes | None]]
"""Maps a request's number to its bytes and the right answer (None: do not compare)."""


def read_bodies(path: Path, *, lines: bool) -> tuple[bytes, ...]:
    """Return the content of a file as one body, or each of its lines as a body."""
    content = path.read_bytes()
    # splitlines() would also split at other characters, which may be part of a body.
    return tuple(content.removesuffix(b"\n").split(b"\n")) if lines else (content,)


def payload_of_files(path: Path, expected: Path | None, *, lines: bool) -> Payload:
    """Return the bodies in a file, and their expected responses from a second file, if given.

    Raises:
        ValueError: if a file cannot be read, or the files do not match.
    """
    try:
        bodies = read_bodies(path, lines=lines)
        answers = None if expected is None else read_bodies(expected, lines=lines)
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from None
    return Payload(bodies=bodies, expected=answers)


def load_function(target: str) -> Callable[[int], Any]:
    """Import the function at MODULE:FUNCTION or FILE.py:FUNCTION.

    Raises:
        ValueError: if module, file or function cannot be imported.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise ValueError(f"{target!r} is not of the form MODULE:FUNCTION or FILE.py:FUNCTION")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{place} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))  # not on the path of an installed command
    return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(plan: Plan) -> Source:
    """Return the source of a plan's requests, which raises ValueError if the plan's function fails.

    Raises:
        ValueError: if the function cannot be imported.
    """
    head, payload = plan.head(), plan.payload
    if payload.function is not None:
        return _calling(load_function(payload.function), head=head)
    bodies = payload.bodies
    if payload.random is not None and not bodies:
        bodies = payload.random.bodies(seed=plan.seed)
    requests = [_request(head, body) for body in bodies]
    answers = payload.expected or [None] * len(requests)
    ready = list(zip(requests, answers, strict=True))
    return lambda number: ready[number % len(ready)]


def sample_bodies(payload: Payload, *, most: int = 1000) -> tuple[bytes, ...]:
    """Return the bodies of a payload, or the first ones that its function returns.

    Raises:
        ValueError: if the function cannot be imported, raises, or returns no body.
    """
    if payload.function is None:
        return payload.bodies
    function = load_function(payload.function)
    return tuple(_made(function, number)[0] for number in range(most))


def _calling(function: Callable[[int], Any], *, head: bytes) -> Source:
    def make(number: int) -> tuple[bytes, bytes | None]:
        body, expected = _made(function, number)
        return _request(head, body), expected

    return make


def _made(function: Callable[[int], Any], number: int) -> tuple[bytes, bytes | None]:
    """Return the body of a request, and the right answer if the function gives one."""
    try:
        made = function(number)
        body, expected = made if isinstance(made, tuple) else (made, None)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"the function for the bodies failed for request {number}: {what}") from error
    if not isinstance(body, bytes | bytearray):
        raise ValueError(
            "the function for the bodies must return bytes, or a tuple of bytes and the expected response, "
            f"got {type(body).__name__} for request {number}"
        )
    if not isinstance(expected, bytes | bytearray | None):
        raise ValueError(
            "the expected response from the function for the bodies must be bytes or None, "
            f"got {type(expected).__name__} for request {number}"
        )
    return bytes(body), None if expected is None else bytes(expected)


def _request(head: bytes, body: bytes) -> bytes:
    return b"%s%d\r\n\r\n%s" % (head, len(body), body)


def same_answer(got: bytes, expected: bytes) -> bool:
    """Return True if two responses are equal as bytes or as JSON values."""
    if got == expected:
        return True
    try:
        return _canonical(got) == _canonical(expected)
    except (msgspec.DecodeError, RecursionError):
        return False


def _canonical(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
