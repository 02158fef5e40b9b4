"""How a service is written: subclass :class:`Service`, decorate handlers with :func:`api`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, Sample
from uncork_workers.definition.checks import check_start, not_a_method, warn_of_units
from uncork_workers.definition.examples import shown_example
from uncork_workers.definition.outputs.media_types import UNASKED, Output
from uncork_workers.wire.schema import (
    COST_IN_BYTES,
    ApiDescription,
    ApiSettings,
    DefinitionError,
    ServiceDescription,
    check_route,
    field_cost,
    not_for_streams,
)

H = TypeVar("H", bound=Callable[..., Any])
_MARK = "__uncork_api__"


class Service:
    """Base class of services. Every worker process makes one object of it, without arguments."""

    worker_index: int = 0
    """Number of the worker, from 0; a worker that takes the place of another has its number."""

    def setup(self) -> None:
        """Load what the handlers need. Called once in every worker, before it takes batches."""

    def teardown(self) -> None:
        """Give back what the worker should not leave behind. Called when it takes no more batches.

        Not if the process is killed: nothing that matters may depend on it.
        """


@dataclass(frozen=True, slots=True)
class ApiDefinition:
    """What ``@api`` wrote on a handler. ``sample`` is what a worker warms up with, if it is to do so."""

    name: str
    adapter: Adapter
    description: ApiDescription
    sample: Sample | None = None


def api(
    *,
    input: Adapter,
    output: Output | Sequence[Output] | None = None,
    route: str | None = None,
    mb_max_latency: float = 300,
    mb_max_batch_size: int = 1000,
    mb_max_batch_bytes: int = 64 * 2**20,
    policy: str = "cork",
    timeout: float = 60,
    idempotent: bool = True,
    cost: float | str | None = None,
    warmup: Any = None,
    allowed_batch_sizes: Sequence[int] | None = None,
) -> Callable[[H], H]:
    """Make a method, plain or ``async``, an api, called once per batch with the rows of all its requests.

    The method gets what ``input`` makes of the rows, and returns as many results, in order: an array
    whose first axis is the rows, or a list.

    With ``policy="none"`` it may also be a generator, plain or ``async``: it is called with one request, all
    its rows, and each piece that it yields is sent to the client at once. Text and bytes are sent as they
    are, anything else as a line of JSON; all pieces of an answer must be of one of these kinds. The first
    may be a ``Response`` that says status, headers and content type, or a ``Rejected``. It is closed when the
    client has left, so that its ``finally`` runs; this is noticed when it yields. Such a request is never
    run a second time, whatever ``idempotent`` says.

    Args:
        input: adapter, for example ``NdArray(dtype="float32", shape=(64,))``.
        output: in which media types the api answers, for example ``Csv()``; of several, the first to clients
            that do not ask with ``Accept``. If it is not given: JSON, and on demand ``.npy`` and CSV. Not for
            generators.
        route: path of the api; ``/<method name>`` if not given.
        mb_max_latency: latency goal in milliseconds. Requests are held only as long as it can be met.
        mb_max_batch_size: most rows in a batch, and in one call of the method.
        mb_max_batch_bytes: most bytes of request bodies in a batch.
        policy: ``"cork"``, ``"cork-classic"``, ``"fixed"``, ``"fixed:MS"``, ``"fixed:MS:ROWS"``,
            ``"aimd"`` or ``"none"``.
        timeout: seconds a batch may run before its worker is killed.
        idempotent: whether a batch that failed may be run again: on another worker if its own died; in parts
            if the method raised, so that only the requests to blame get 500.
        cost: what a row weighs, if rows differ much in the time that they take; batch time is then predicted
            from the weight of a batch, and ``mb_max_batch_size`` is its most weight. A number: each row
            weighs that. ``"bytes"``: the length of the row's JSON text. Any other string: a field of rows
            that are JSON objects, where a number is the weight itself (at most 1e9), and a string, list or
            object weighs the length of its JSON text in bytes (a string without its quotes, at least 1);
            a request without it gets 400.
        warmup: an example of a row. Each worker calls the method with batches of it before it is ready, so
            that the first clients find a model that is warm, and the time of their batches known. For rows:
            a value as a JSON client would send it, or what becomes that (an array, a row as a dict, an
            instance of the type). For files, images and whole requests: bytes, a ``pathlib.Path``, or a
            ``Request``. ``/docs`` shows it to people who want to try the api, if it is JSON or text.
        allowed_batch_sizes: rising numbers of rows; the method is called with these only. A batch of another
            size has its last row repeated, and the results of the surplus are dropped. For models that are
            compiled for some sizes.

    Raises:
        DefinitionError: if an argument is wrong; the message names the api, the argument and the range.
    """

    def decorate(handler: H) -> H:
        name = getattr(handler, "__name__", repr(handler))
        _check_input(name, input)
        _check_handler(name, handler)
        streams = inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler)
        if streams:
            _check_stream(
                name,
                policy,
                output=output,
                warmup=warmup,
            )
        settings = ApiSettings(
            mb_max_latency=mb_max_latency,
            mb_max_batch_size=mb_max_batch_size,
            mb_max_batch_bytes=mb_max_batch_bytes,
            policy=policy,
            timeout=timeout,
            idempotent=idempotent,
            cost=cost,
            allowed_batch_sizes=_sizes(allowed_batch_sizes),
        )
        path = f"/{name}" if route is None else route
        check_route(name, path)
        sample = None if warmup is None else _sample(name, input, warmup, cost)
        example, example_type = shown_example(input, sample, cost)
        description = ApiDescription(
            name=name,
            route=path,
            input=input.describe(),
            offers=_offers(name, output),
            schema=input.schema(),
            settings=settings,
            doc=inspect.getdoc(handler) or "",
            example=example,
            example_type=example_type,
            answers_each=input.answers_each,
            streams=streams,
        )
        description.check()
        warn_of_units(name, settings)
        setattr(handler, _MARK, ApiDefinition(name, input, description, sample))
        return handler

    return decorate


def _sample(api: str, adapter: Adapter, example: object, cost: object) -> Sample:
    """The request for the warm-up, once the adapter has found it as good as one of a client."""
    try:
        sample = adapter.sample(example)
        if sample.meta is None:
            adapter.merge([sample.body])
        else:
            adapter.merge_raw([sample.body], [sample.meta])
        if isinstance(cost, str) and cost != COST_IN_BYTES:
            field_cost(sample.body, cost)
    except ValueError as error:
        reason = error.in_single_row() if isinstance(error, InvalidInput) else error
        raise DefinitionError(f"api {api!r}: warmup must be an example of one row: {reason}") from error
    return sample


def _sizes(sizes: object) -> Any:
    """As they are described; what is no list is told by the check."""
    return tuple(sizes) if isinstance(sizes, list | tuple) else sizes


def _offers(api: str, output: object) -> tuple[str, ...]:
    if output is None:
        return UNASKED
    given = output if isinstance(output, list | tuple) else [output]
    outputs = [one for one in given if isinstance(one, Output)]
    if not outputs or len(outputs) < len(given):
        raise DefinitionError(
            f"api {api!r}: output must be an output adapter such as Csv(), or a list of them, got {output!r}"
        )
    return tuple(dict.fromkeys(one.media_type for one in outputs))


def find_apis(service: type[Service]) -> list[ApiDefinition]:
    """The apis of a service in the order of their definition, those of base classes first.

    Raises:
        DefinitionError: if there is none, one is no plain method, or two have the same route.
    """
    found: dict[str, ApiDefinition] = {}
    for klass in reversed(service.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, staticmethod | classmethod) and hasattr(value.__func__, _MARK):
                raise DefinitionError(not_a_method(value))
            definition = getattr(value, _MARK, None)
            if isinstance(definition, ApiDefinition):
                if definition.name != name:
                    raise DefinitionError(f"api {definition.name!r} has another name in the class: {name!r}")
                found[name] = definition
            else:
                found.pop(name, None)  # overridden by something that is not an api
    if not found:
        raise DefinitionError(
            f"service {service.__name__} has no api: decorate a method with @api(input=...)"
        )
    by_route: dict[str, str] = {}
    for name, definition in found.items():
        other = by_route.setdefault(definition.description.route, name)
        if other != name:
            raise DefinitionError(
                f"apis {other!r} and {name!r} have the same route {definition.description.route!r}"
            )
    return list(found.values())


def describe_service(service: type[Service]) -> ServiceDescription:
    """What the gateway is told about a service.

    Raises:
        DefinitionError: as :func:`find_apis`, and if it cannot be made and set up without arguments.
    """
    check_start(service)
    apis = [definition.description for definition in find_apis(service)]
    # Not that of the base class, which getdoc would find.
    doc = inspect.cleandoc(service.__doc__ or "")
    return ServiceDescription(name=service.__name__, apis=apis, doc=doc)


def _check_input(name: str, adapter: object) -> None:
    if isinstance(adapter, Adapter):
        return
    hint = ""
    if isinstance(adapter, type) and issubclass(adapter, Adapter):
        hint = f"; write input={adapter.__name__}()"
    raise DefinitionError(f"api {name!r}: input must be an adapter such as Json(), got {adapter!r}{hint}")


def _check_handler(name: str, handler: object) -> None:
    if not inspect.isfunction(handler):
        raise DefinitionError(not_a_method(handler))
    try:
        inspect.signature(handler).bind("self", "rows")
    except TypeError:
        raise DefinitionError(
            f"api {name!r}: the handler is called with self and the rows of the batch; write "
            f"def {name}(self, rows), not def {name}{inspect.signature(handler)}"
        ) from None


_NOT_FOR_STREAMS = {
    "output": "the first piece says what they are",
    "warmup": "setup can run the model once",
}


def _check_stream(name: str, policy: object, **arguments: object) -> None:
    """Check what was given for a generator."""
    if policy != "none":
        raise DefinitionError(
            f"api {name!r}: a generator streams its answers, one request at a time; write policy='none', or "
            f"return a list"
        )
    for argument, value in arguments.items():
        if value is not None:
            raise not_for_streams(name, argument, _NOT_FOR_STREAMS[argument])
