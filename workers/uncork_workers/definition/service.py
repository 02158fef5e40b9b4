"""Services: subclass :class:`Service` and decorate its handlers with :func:`api`."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from uncork_workers.definition.adapters.base import Adapter, Sample
from uncork_workers.definition.checks import (
    check_concurrency,
    check_handler,
    check_input,
    check_stages,
    check_start,
    check_stream,
    not_a_method,
    offers_of,
    version_of,
    warn_of_units,
)
from uncork_workers.definition.examples import docs_example, warmup_sample
from uncork_workers.definition.outputs.media_types import Output
from uncork_workers.wire.schema import (
    ApiDescription,
    ApiSettings,
    ErrorFormat,
    ServiceDescription,
    Task,
    first_goal,
)
from uncork_workers.wire.values import (
    DefinitionError,
    check_route,
    group_sources,
    header_names,
)

H = TypeVar("H", bound=Callable[..., Any])
Convert = Callable[[Any, Sequence[Mapping[str, Any]]], Any]
"""Returns results for rows from what the methods returned, and the parameters of each row."""
_MARK = "__uncork_api__"


class Service:
    """Base class of services. Every worker process creates one instance, without arguments."""

    version: str = ""
    """Version of the service, such as ``"2.1.0"``, for clients: ``/docs`` and ``/openapi.json`` show it."""

    worker_index: int = 0
    """Number of the worker, from 0. A worker that replaces another gets its number."""

    def setup(self) -> None:
        """Load models and whatever else the handlers need. Called once per worker, before its first batch.

        If it raises, the worker exits and is started again.
        """

    def teardown(self) -> None:
        """Release resources. Called once when the worker stops.

        It is not called when the process is killed, so nothing that matters may depend on it.
        """


@dataclass(frozen=True, slots=True)
class ApiDefinition:
    """What ``@api`` attaches to a handler.

    Workers warm up with ``sample``, if there is one, and apply ``convert`` to the results of each call.
    """

    name: str
    adapter: Adapter
    handler: Callable[..., Any]
    description: ApiDescription
    sample: Sample | None = None
    prepare: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    convert: Convert | None = None

    @property
    def has_stages(self) -> bool:
        """Whether it has ``prepare`` or ``finish``."""
        return self.prepare is not None or self.finish is not None

    @property
    def methods(self) -> list[Callable[..., Any]]:
        """The methods that run, in this order."""
        return [method for method in (self.prepare, self.handler, self.finish) if method is not None]


def api(
    *,
    input: Adapter,
    output: Output | Sequence[Output] | None = None,
    route: str | None = None,
    mb_max_latency: float | None = None,
    classes: Mapping[str, float | None] | None = None,
    mb_max_batch_size: int = 1000,
    mb_max_batch_bytes: int = 64 * 2**20,
    policy: str = "cork",
    timeout: float = 60,
    idempotent: bool = True,
    cost: float | str | None = None,
    warmup: Any = None,
    allowed_batch_sizes: Sequence[int] | None = None,
    allowed_lengths: Sequence[float] | None = None,
    errors: ErrorFormat = "problem",
    group_by: str | Sequence[str] | None = None,
    coalesce: bool = False,
    headers: Sequence[str] = (),
    workers: int | None = None,
    concurrency: int = 1,
    prepare: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
) -> Callable[[H], H]:
    """Serve a method, plain or ``async``, as an API: it is called once per batch, with all rows of the batch.

    The method gets the rows as ``input`` builds them, and returns one result per row, in order: an array
    whose first axis is the rows, a table, or a list.

    With ``policy="none"`` the method may also be a generator, plain or ``async``. It is then called with the
    rows of one request, and each value that it yields goes to the client at once: ``str`` and ``bytes`` as
    they are, anything else as a line of JSON. All values of a response must be of one of these kinds. The
    first may be a ``Response``, which sets status, headers and content type, or a ``Rejected``. When the
    client disconnects, the generator is closed at its next ``yield``, so its ``finally`` blocks run. Such a
    request is never executed twice, whatever ``idempotent`` says.

    Args:
        input: the input adapter, for example ``NdArray(dtype="float32", shape=(64,))``.
        output: the output adapters, for example ``Csv()``. Clients choose with ``Accept``; without it they
            get the first. Default: JSON, and on request ``.npy`` and CSV. Not for generators.
        route: path of the API. Default: ``/<method name>``.
        mb_max_latency: latency goal in milliseconds, 300 by default. A request waits for others only while
            the goal can still be met.
        classes: two classes of requests with goals of their own, instead of ``mb_max_latency``, such as
            ``{"interactive": 100, "bulk": 10_000}``: names and goals in milliseconds, the shorter goal
            first. Clients name the class in the header ``X-Request-Class``; the first is the default. Its
            requests go first; the second runs in the room that the first goal leaves. A second goal of None
            is never missed, so no request of that class is refused for it. Requires the policy ``"cork"``.
        mb_max_batch_size: the most rows in a batch and in one call of the method.
        mb_max_batch_bytes: the most bytes of request bodies in a batch.
        policy: when to release a batch: ``"cork"``, ``"cork-classic"``, ``"fixed"``, ``"fixed:MS"``,
            ``"fixed:MS:ROWS"``, ``"aimd"`` or ``"none"``.
        timeout: seconds a batch may take before its worker is killed; with ``concurrency``, the batch is
            cancelled instead.
        idempotent: whether a failed batch may be executed again: by another worker if its worker died, or in
            parts if the method raised, so that only the requests at fault get 500.
        cost: the cost of a row, such as its length, for rows whose execution times differ much. Batch times
            are then predicted from the sum of the costs or, if the model pads batches, from the number of
            rows times the largest cost; ``mb_max_batch_size`` limits the same quantity. A number: the cost
            of every row. ``"bytes"``: the length of the row's JSON text or, for files, images and whole
            requests, of the body. Any other string: a field of rows that are JSON objects. A number in that
            field is the cost itself (at most 1e9); a string, list or object costs the bytes of its JSON text
            (a string without its quotes, at least 1). A request without the field gets 400.
        warmup: an example row. Each worker calls the method with batches of it before it is ready, so the
            first clients find a warm model and the gateway knows its batch times. For rows: a value as a
            JSON client would send it, or one that converts to it (an array, a row as a dict, an instance of
            the type). For files, images and whole requests: bytes, a ``pathlib.Path`` or a ``Request``.
            ``/docs`` shows it as an example if it is JSON or text.
        allowed_batch_sizes: the only numbers of rows that the method is called with, in rising order, for
            models compiled for certain sizes. Other batches are padded with copies of their last row, and
            the results of the copies are dropped. With a cost, the largest size limits the rows of a call,
            and ``mb_max_batch_size`` their cost.
        allowed_lengths: the only lengths to which the method pads its rows, in rising order and in the unit
            of ``cost``, for models compiled for certain lengths; requires ``cost``. A row then counts as long
            as the next allowed length, and a longer one as the last, at which the model is assumed to
            truncate. The method pads the rows itself, for example with :func:`uncork.pad`.
        errors: the format of errors at the API's own route: ``"problem"`` for problem documents (RFC 9457),
            or ``"openai"`` for clients of OpenAI's API.
        group_by: the value that requests must share to share a batch; ``uncork.context().group`` has it.
            ``"language"``: a field of rows that are objects or tables, or else a request parameter of the
            Open Inference Protocol V2. ``"header:x-lang"``: a header, or gRPC metadata; requests without it
            are a group of their own, whose value is None. ``"parameter:beams"``: a V2 request parameter.
            Several as a tuple. A value is a string, a number, true or false of at most 256 bytes; any other
            gets 400. A request whose rows differ is split, and its results are joined in order. Not for
            generators.
        coalesce: whether identical requests that are queued or running at one time run once, and all get
            the result, for methods whose result follows from rows and context alone. Results are not kept.
            Not with ``idempotent=False`` or the policy ``"none"``.
        headers: the headers, or gRPC metadata, that the method reads in ``uncork.context().headers``, such as
            ``("x-tenant",)``. Headers with credentials are not allowed. With ``coalesce``, identical requests
            have the same values. Only ``"x-request-id"`` may differ: it is the id of each request, from its
            client or made by the gateway.
        workers: how many of the service's workers run only this API. It uses no others, and the APIs without
            this argument share the rest. Each of them still loads the whole service.
        concurrency: how many batches of this API each worker may run at once, for ``async`` methods that wait
            for other services. They share an event loop in a thread of its own; besides them, the worker runs
            one batch of the other APIs. Not with ``workers``, and not in a service with ``prepare`` or
            ``finish``.
        prepare: a method of the service, such as a tokenizer, that gets the rows; the decorated method then
            gets what it returns. It runs in a thread of its own while the decorated method runs the batch
            before, if measurements show that this pays. Not for generators.
        finish: a method that gets what the decorated method returns, and returns one result per row. It also
            runs in a thread of its own, while the decorated method runs the next batch.

    Raises:
        DefinitionError: if an argument is invalid; the message names the API, the argument and what is
            accepted.
    """

    def decorate(handler: H) -> H:
        name = getattr(handler, "__name__", repr(handler))
        check_input(name, input)
        check_handler(name, handler)
        streams = inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler)
        if streams:
            check_stream(name, policy, output=output, warmup=warmup, prepare=prepare, finish=finish)
        check_stages(name, prepare=prepare, finish=finish)
        check_concurrency(name, concurrency, handler)
        settings = ApiSettings(
            mb_max_latency=first_goal(name, mb_max_latency, classes),
            mb_max_batch_size=mb_max_batch_size,
            mb_max_batch_bytes=mb_max_batch_bytes,
            policy=policy,
            timeout=timeout,
            idempotent=idempotent,
            cost=cost,
            allowed_batch_sizes=_as_tuple(allowed_batch_sizes),
            allowed_lengths=_as_tuple(allowed_lengths),
            workers=workers,
        )
        path = f"/{name}" if route is None else route
        check_route(name, path)
        sources = group_sources(name, by := _as_tuple(group_by))
        sample = None if warmup is None else warmup_sample(name, input, warmup, settings.cost_field, sources)
        example, example_type = docs_example(input, sample, settings.cost_field, sources)
        description = ApiDescription(
            name=name,
            route=path,
            input=input.describe(),
            offers=offers_of(name, output),
            schema=input.schema(),
            settings=settings,
            doc=inspect.getdoc(handler) or "",
            example=example,
            example_type=example_type,
            answers_each=input.answers_each,
            streams=streams,
            errors=errors,
            group_by=by,
            classes=None if classes is None else dict(classes),
            coalesce=coalesce,
            headers=header_names(name, headers),
            concurrency=concurrency,
        )
        description.check()
        warn_of_units(name, settings)
        setattr(handler, _MARK, ApiDefinition(name, input, handler, description, sample, prepare, finish))
        return handler

    return decorate


def set_task(handler: H, task: Task, aliases: tuple[str, ...], convert: Convert) -> H:
    """Give the API of a handler a task, further routes and a conversion of results; return the handler."""
    definition: ApiDefinition = getattr(handler, _MARK)
    description = msgspec.structs.replace(definition.description, task=task, aliases=aliases)
    setattr(handler, _MARK, dataclasses.replace(definition, description=description, convert=convert))
    return handler


def _as_tuple(values: Any) -> Any:
    """Return a list as a tuple; the check of the settings reports other values."""
    return tuple(values) if isinstance(values, list) else values


def find_apis(service: type[Service]) -> list[ApiDefinition]:
    """Return the APIs of a service in the order of their definition, those of base classes first.

    Raises:
        DefinitionError: if there is none, one is not a plain method, or two share a route.
    """
    found: dict[str, ApiDefinition] = {}
    for klass in reversed(service.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, staticmethod | classmethod) and hasattr(value.__func__, _MARK):
                raise DefinitionError(not_a_method(value))
            definition = getattr(value, _MARK, None)
            if isinstance(definition, ApiDefinition):
                if definition.name != name:
                    raise DefinitionError(f"API {definition.name!r} has another name in the class: {name!r}")
                found[name] = definition
            else:
                found.pop(name, None)  # overridden by something that is not an api
    if not found:
        raise DefinitionError(
            f"service {service.__name__} has no API; decorate a method with @api(input=...)"
        )
    _check_methods(service, found.values())
    by_route: dict[str, str] = {}
    for name, route in [(name, route) for name, one in found.items() for route in one.description.routes]:
        other = by_route.setdefault(route, name)
        if other != name:
            raise DefinitionError(f"APIs {other!r} and {name!r} have the same route {route!r}")
    return list(found.values())


def _check_methods(service: type[Service], apis: Collection[ApiDefinition]) -> None:
    """Check that each stage is a method of the service that no two threads would run at one time."""
    stages = {"prepare": {one.prepare for one in apis}, "finish": {one.finish for one in apis}}
    concurrent = [one.name for one in apis if one.description.concurrency > 1]
    staged = [one.name for one in apis if one.has_stages]
    if concurrent and staged:
        raise DefinitionError(
            f"service {service.__name__}: API {concurrent[0]!r} has concurrency and API {staged[0]!r} has "
            "prepare or finish, and a worker does only one of both; make two services of them"
        )
    for definition in apis:
        for argument, other in (("prepare", "finish"), ("finish", "prepare")):
            stage = getattr(definition, argument)
            if stage is None:
                continue
            method = inspect.getattr_static(service, stage.__name__, None)
            if not inspect.isfunction(method) or hasattr(method, _MARK):
                raise DefinitionError(
                    f"API {definition.name!r}: {argument} must be a method of {service.__name__} that is no "
                    f"API, got {stage.__qualname__}; define it in the class, above the API"
                )
            if stage in stages[other]:
                raise DefinitionError(
                    f"API {definition.name!r}: {stage.__name__} is {argument} here and {other} too, in two "
                    "threads at once; write a method for each"
                )


def describe_service(service: type[Service]) -> ServiceDescription:
    """Return the description of a service for the gateway.

    Raises:
        DefinitionError: as :func:`find_apis`, if the service cannot be created and set up without
            arguments, and if its version is a number.
    """
    check_start(service)
    apis = [definition.description for definition in find_apis(service)]
    # getdoc() would find the docstring of the base class.
    doc = inspect.cleandoc(service.__doc__ or "")
    return ServiceDescription(name=service.__name__, apis=apis, doc=doc, version=version_of(service))
