"""Checks of a service class that need not run it."""

import inspect
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

from uncork_workers.definition.adapters.base import Adapter
from uncork_workers.definition.outputs.media_types import DEFAULT_MEDIA_TYPES, Output
from uncork_workers.wire.schema import MAX_CONCURRENCY, ApiSettings
from uncork_workers.wire.values import DefinitionError, not_for_streams, wrong_value

# Values beyond these limits were probably meant in another unit.
_SHORT_GOAL_MS, _LONG_TIMEOUT_S = 1, 3600
_NOT_FOR_STREAMS = {
    "output": "the first piece determines the content type",
    "warmup": "setup can run the model instead",
    "prepare": "the generator can call the method itself",
    "finish": "the generator can call the method itself",
}


def warn_of_units(name: str, settings: ApiSettings) -> None:
    """Warn, at the line in the class body, about values that were probably meant in another unit."""
    goal_ms, timeout_s = settings.mb_max_latency, settings.timeout
    in_class_body = 3
    if goal_ms < _SHORT_GOAL_MS:
        warnings.warn(
            f"API {name!r}: mb_max_latency is in milliseconds, and {goal_ms:g} ms is too short for most "
            f"models; for {goal_ms:g} seconds, write {goal_ms * 1000:g}",
            stacklevel=in_class_body,
        )
    if timeout_s > _LONG_TIMEOUT_S:
        warnings.warn(
            f"API {name!r}: timeout is in seconds, and {timeout_s:g} s is more than an hour; for "
            f"{timeout_s:g} milliseconds, write {timeout_s / 1000:g}",
            stacklevel=in_class_body,
        )


def not_a_method(value: object) -> str:
    """Return the error message for an object that ``@api`` cannot decorate."""
    if isinstance(value, staticmethod | classmethod | property):
        kind, function = type(value).__name__, value.fget if isinstance(value, property) else value.__func__
        name = getattr(function, "__name__", "handler")
        return f"API {name!r}: remove @{kind}; an API is a plain method, def {name}(self, rows)"
    return f"@api must decorate a method, got {value!r}"


def check_input(name: str, adapter: object) -> None:
    if isinstance(adapter, Adapter):
        return
    hint = ""
    if isinstance(adapter, type) and issubclass(adapter, Adapter):
        hint = f"; write input={adapter.__name__}()"
    raise wrong_value(name, "input", "an adapter such as Json()", adapter, hint)


def offers_of(api: str, output: object) -> tuple[str, ...]:
    """Return the media types that the ``output`` of an API offers."""
    if output is None:
        return DEFAULT_MEDIA_TYPES
    given = output if isinstance(output, list | tuple) else [output]
    outputs = [one for one in given if isinstance(one, Output)]
    if not outputs or len(outputs) < len(given):
        raise wrong_value(api, "output", "an output adapter such as Csv(), or a list of them", output)
    return tuple(dict.fromkeys(one.media_type for one in outputs))


def check_handler(name: str, handler: object) -> None:
    """Check that a handler is a method of the rows."""
    if not inspect.isfunction(handler):
        raise DefinitionError(not_a_method(handler))
    if not accepts(handler, "self", "rows"):
        raise DefinitionError(
            f"API {name!r}: the handler is called with self and the rows of the batch; write "
            f"def {name}(self, rows), not def {name}{inspect.signature(handler)}"
        )


def check_stream(name: str, policy: object, **arguments: object) -> None:
    """Check that an API whose handler is a generator has no ``arguments`` for batches."""
    if policy != "none":
        raise DefinitionError(
            f"API {name!r}: a generator streams its responses, one request at a time; set policy='none', or "
            "return a list"
        )
    for argument, value in arguments.items():
        if value is not None:
            raise not_for_streams(name, argument, _NOT_FOR_STREAMS[argument])


def check_stages(api: str, **stages: object) -> None:
    """Check the ``prepare`` and ``finish`` of an API, if it has them.

    Raises:
        DefinitionError: if one is not a plain method of the rows or the results.
    """
    for argument, stage in stages.items():
        if stage is None:
            continue
        if not inspect.isfunction(stage):
            raise wrong_value(api, argument, "a method defined above the API", stage)
        if inspect.iscoroutinefunction(stage) or inspect.isgeneratorfunction(inspect.unwrap(stage)):
            raise DefinitionError(
                f"API {api!r}: {argument} must be a plain method, without async and yield; it has a thread "
                "of its own and may block"
            )
        if not accepts(stage, "self", "batch"):
            raise DefinitionError(
                f"API {api!r}: {argument} is called with self and the whole batch; write "
                f"def {stage.__name__}(self, batch), not def {stage.__name__}{inspect.signature(stage)}"
            )


def check_concurrency(api: str, concurrency: object, handler: Callable[..., Any]) -> None:
    """Check the ``concurrency`` of an API.

    Raises:
        DefinitionError: if it is no number of batches, or the handler would run one after the other.
    """
    if type(concurrency) is not int or not 1 <= concurrency <= MAX_CONCURRENCY:
        accepted = f"a whole number of batches from 1 to {MAX_CONCURRENCY}"
        raise wrong_value(api, "concurrency", accepted, concurrency)
    is_async = inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)
    if concurrency > 1 and not is_async:
        raise DefinitionError(
            f"API {api!r}: concurrency requires an async method, and {handler.__name__} is a plain one, of "
            "which a worker runs one batch at a time; write async def, or start more workers"
        )


def check_start(service: type[Any]) -> None:
    """Check that workers can instantiate a service and call its ``setup()`` and ``teardown()``.

    Raises:
        DefinitionError: if ``__init__`` requires arguments, or one of these is not a plain method.
    """
    name = service.__name__
    if required := _required_arguments(service):
        raise DefinitionError(
            f"service {name}: __init__ must not require arguments, but requires {required}; "
            "initialize the service in setup(self)"
        )
    for method in ("setup", "teardown"):
        _check_plain(name, method, inspect.getattr_static(service, method))


def _check_plain(name: str, method: str, function: Any) -> None:
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"service {name}: {method} must be a plain method, not async; run async code in it with "
            "asyncio.run(...)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"service {name}: {method} must be a plain method, without yield")
    if inspect.isfunction(function) and not accepts(function, "self"):
        raise DefinitionError(
            f"service {name}: {method} is called without arguments; write def {method}(self), "
            f"not def {method}{inspect.signature(function)}"
        )


def version_of(service: type[Any]) -> str:
    """Return the version of a service; empty if it sets none, or has an API or a method of that name.

    Raises:
        DefinitionError: if the version is a number, from which 1.10 could not be told from 1.1.
    """
    version = inspect.getattr_static(service, "version")
    if isinstance(version, int | float):
        raise DefinitionError(
            f"service {service.__name__}: version must be a string, got {version!r}; write "
            f'version = "{version}"'
        )
    return version if isinstance(version, str) else ""


def _required_arguments(service: type[Any]) -> str:
    try:
        parameters = inspect.signature(service).parameters.values()
    except ValueError:
        return ""  # implemented in C: no signature
    return ", ".join(
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    )


def accepts(function: Callable[..., Any], *arguments: str) -> bool:
    """Return whether a function can be called with these positional arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """Return the code of a function, without its decorators; None if it is not written in Python."""
    return getattr(inspect.unwrap(function), "__code__", None)


def message_of(error: BaseException) -> str:
    """Return the text of an exception, or what tracebacks have instead if its ``__str__`` raises."""
    try:
        return str(error)
    except BaseException:  # code of the service too
        return "<exception str() failed>"


def describe_function(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function, with its file and line."""
    code = code_of(function)
    place = "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
    return f"{function.__qualname__}{place}"
