"""The schema of a service: its APIs, their settings, inputs and outputs.

The gateway never imports user code; a worker sends this description of it.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeGuard, get_args

import msgspec

from uncork_workers.wire.groups import Source, group_of_row, is_header_name, sources_of
from uncork_workers.wire.json_faults import json_fault

# Paths that the gateway serves itself, now or in a later version.
RESERVED_ROUTES = (
    "/livez",
    "/readyz",
    "/healthz",
    "/ping",
    "/metrics",
    "/status",
    "/openapi.json",
    "/docs",
    "/v1/models",
    "/v2",
)
RESERVED_PREFIXES = ("/v1/models/", "/v2/", "/dashboard", "/docs/", "/readyz/")
COST_IN_BYTES = "bytes"
JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
MAX_COST = 10**9
# Larger numbers do not fit into the messages between gateway and worker, and mean nothing.
MAX_COUNT = 10**9
MAX_SECONDS = 10**9
MAX_BATCH_BYTES = 2**31
# Each batch has a thread.
MAX_CONCURRENCY = 1000
# Costs are multiples of 2**-16, so sums up to 2**53 units (over a hundred requests of the largest cost) are
# exact: adding a request's cost to a total and subtracting it later leaves no rounding error.
_COST_UNITS = 2**16
_SHOWN_CHARACTERS = 40
ErrorFormat = Literal["problem", "openai"]
"""How an API writes errors: as problem documents (RFC 9457), or as OpenAI's API does."""
Task = Literal["", "embeddings", "rerank"]
"""The task of an API of a text model; empty for any other API."""
# Kinds of input whose rows may be JSON objects.
KINDS_WITH_FIELDS = ("json", "dataframe")
_NOT_FOR_STREAMS = {
    "cost": "execution times are not predicted",
    "allowed_batch_sizes": "requests are not batched",
    "allowed_lengths": "requests are not batched",
    "group_by": "requests are not batched",
    "classes": "requests are not batched",
}
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "x-api-key")
REQUEST_ID = "x-request-id"
"""The header that names a request; every request has one."""

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DefinitionError(ValueError):
    """A service is defined incorrectly; the message names the API, the argument and the accepted values."""


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of ``@api`` that the command line and the configuration may override.

    See :func:`uncork.api` for their meaning.
    """

    mb_max_latency: float = 300
    mb_max_batch_size: int = 1000
    mb_max_batch_bytes: int = 64 * 2**20
    policy: str = "cork"
    timeout: float = 60
    idempotent: bool = True
    cost: float | str | None = None
    allowed_batch_sizes: tuple[int, ...] | None = None
    allowed_lengths: tuple[float, ...] | None = None
    workers: int | None = None

    @property
    def limit_rows(self) -> int:
        """The largest cost of a batch. Where rows have no cost, it also fits the largest allowed size."""
        if self.cost is not None or not self.allowed_batch_sizes:
            return self.mb_max_batch_size
        return min(self.mb_max_batch_size, self.allowed_batch_sizes[-1])

    @property
    def cost_field(self) -> str | None:
        """The field of a row that holds its cost, if the cost is a field."""
        return self.cost if isinstance(self.cost, str) and self.cost != COST_IN_BYTES else None

    def check(self, api: str) -> None:
        """Check every value.

        Raises:
            DefinitionError: at the first value of the wrong type or out of range.
        """
        _check_number(
            api, "mb_max_latency", self.mb_max_latency, unit="milliseconds", most=1000 * MAX_SECONDS
        )
        _check_number(api, "timeout", self.timeout, unit="seconds", most=MAX_SECONDS)
        _check_count(api, "mb_max_batch_size", self.mb_max_batch_size, unit="rows", most=MAX_COUNT)
        _check_count(api, "mb_max_batch_bytes", self.mb_max_batch_bytes, unit="bytes", most=MAX_BATCH_BYTES)
        if not isinstance(self.policy, str):
            raise wrong_value(api, "policy", "a string", self.policy)
        if not isinstance(self.idempotent, bool):
            raise wrong_value(api, "idempotent", "True or False", self.idempotent)
        _check_cost(api, self.cost)
        _check_sizes(api, self.allowed_batch_sizes)
        _check_lengths(api, self.allowed_lengths)
        if self.workers is not None:
            _check_count(api, "workers", self.workers, unit="workers", most=MAX_COUNT)


class ApiDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One API.

    Attributes:
        input: configures the gateway's codec, which ``input["kind"]`` selects.
        offers: media types of responses; clients without an ``Accept`` header get the first.
        schema: JSON schema of a row.
        doc: docstring of the handler.
        example: a row as JSON, or a text as a JSON string, for people to try; empty if there is none.
        example_type: media type of the body that carries the example.
        answers_each: whether each result is a complete response with its own media type and status.
        streams: whether the handler streams its responses; it then runs one request at a time, once.
        errors: the format of errors at the API's own route.
        group_by: the sources of values that requests must share to share a batch; a tuple's values are a
            tuple for the handler.
        classes: the names of both classes of requests and their goals in milliseconds, the default class
            first; the second goal may be None. The current goal of the first is ``mb_max_latency``. None:
            the API has one class.
        coalesce: whether identical requests that are queued or running at one time run once.
        headers: the headers that the handler may read, in lower case.
        concurrency: how many batches a worker may run at once.
        task: what the API does with texts; its routes then also accept the task's usual requests.
        aliases: its other routes.
    """

    name: str
    route: str
    input: dict[str, Any]
    offers: tuple[str, ...] = (JSON,)
    schema: dict[str, Any] = {}
    settings: ApiSettings = ApiSettings()
    doc: str = ""
    example: bytes = b""
    example_type: str = ""
    answers_each: bool = False
    streams: bool = False
    errors: ErrorFormat = "problem"
    group_by: str | tuple[str, ...] | None = None
    classes: dict[str, float | None] | None = None
    coalesce: bool = False
    headers: tuple[str, ...] = ()
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONCURRENCY)] = 1
    task: Task = ""
    aliases: tuple[str, ...] = ()

    @property
    def routes(self) -> list[str]:
        """The route and the aliases."""
        return list(dict.fromkeys((self.route, *self.aliases)))

    @property
    def class_names(self) -> tuple[str, str] | None:
        """The names of the classes, the default first; None with one class."""
        if self.classes is None:
            return None
        first, second = self.classes
        return first, second

    @property
    def bulk_goal_s(self) -> float | None:
        """The goal of the second class in seconds, infinity if it has none; None with one class."""
        if self.classes is None:
            return None
        goal_ms = list(self.classes.values())[1]
        return math.inf if goal_ms is None else goal_ms / 1000

    @property
    def sources(self) -> list[Source]:
        """The sources of ``group_by``."""
        return group_sources(self.name, self.group_by)

    @property
    def group_fields(self) -> list[str]:
        """The fields of a row that ``group_by`` names."""
        return [source.name for source in self.sources if source.kind == "field"]

    def group_of(self, row: bytes) -> bytes | None:
        """Return the text of the group of a request with one row, without headers and parameters.

        None if the API has no ``group_by``.

        Raises:
            ValueError: if the row has no value that ``group_by`` accepts.
        """
        if self.group_by is None:
            return None
        return group_of_row(row, self.sources, is_single=isinstance(self.group_by, str))

    def check(self) -> None:
        """Check the settings, alone and together with the input.

        Raises:
            DefinitionError: at the first value of the wrong type, out of range, or not allowed for this API.
        """
        self.settings.check(self.name)
        if self.errors not in get_args(ErrorFormat):
            raise wrong_value(self.name, "errors", " or ".join(map(repr, get_args(ErrorFormat))), self.errors)
        for argument, reason in _NOT_FOR_STREAMS.items():
            holder = self if argument in ("group_by", "classes") else self.settings
            if self.streams and getattr(holder, argument) is not None:
                raise not_for_streams(self.name, argument, reason)
        self._check_groups()
        self._check_classes()
        self._check_coalescing()
        if self.concurrency > 1 and self.settings.workers is not None:
            raise DefinitionError(
                f"API {self.name!r}: concurrency leaves the workers to the other APIs, and workers reserves "
                "some; remove one of them"
            )
        if self.settings.allowed_lengths is not None and self.settings.cost is None:
            raise DefinitionError(
                f"API {self.name!r}: allowed_lengths requires a cost, the length of a row; set cost"
            )
        if self.settings.cost_field is not None and self.input.get("kind") not in KINDS_WITH_FIELDS:
            accepted = f"a number or {COST_IN_BYTES!r} for this input, whose rows have no fields"
            raise wrong_value(self.name, "cost", accepted, self.settings.cost)

    def _check_classes(self) -> None:
        if self.classes is None:
            return
        check_classes(self.name, self.classes)
        if self.settings.policy != "cork":
            raise DefinitionError(
                f"API {self.name!r}: classes require policy 'cork', got {self.settings.policy!r}; other "
                "policies do not know how much bulk a batch may have"
            )
        (first, _), (second, goal_ms) = self.classes.items()
        if goal_ms is not None and not self.settings.mb_max_latency < goal_ms:
            raise DefinitionError(
                f"API {self.name!r}: mb_max_latency is the goal of class {first!r} and must be less than "
                f"{goal_ms:g} ms, the goal of {second!r}, got {self.settings.mb_max_latency:g}"
            )

    def _check_coalescing(self) -> None:
        if not isinstance(self.coalesce, bool):
            raise wrong_value(self.name, "coalesce", "True or False", self.coalesce)
        if not self.coalesce:
            return
        if self.streams:
            raise not_for_streams(self.name, "coalesce", "each request gets its own stream")
        for argument, value in (("idempotent", False), ("policy", "none")):
            if getattr(self.settings, argument) == value:
                raise DefinitionError(
                    f"API {self.name!r}: coalesce=True runs identical requests once, but with "
                    f"{argument}={value!r} each runs by itself; remove one of them"
                )

    def _check_groups(self) -> None:
        is_raw = self.input.get("kind") == "raw"
        for source in self.sources:
            if source.kind == "parameter" and is_raw:
                raise DefinitionError(
                    f"API {self.name!r}: group_by names the parameter {source.name!r}, but no protocol with "
                    "parameters can carry this input; write 'header:NAME'"
                )
            if source.kind == "field" and not self._may_have(source.name):
                raise DefinitionError(
                    f"API {self.name!r}: group_by names the field {source.name!r}, which rows of this input "
                    f"cannot have; write 'header:NAME'{'' if is_raw else ' or ' + repr('parameter:NAME')}"
                )

    def _may_have(self, field: str) -> bool:
        """Return whether rows may have a field of this name."""
        if self.input.get("kind") not in KINDS_WITH_FIELDS:
            return False
        columns = self.input.get("columns")
        return field in columns if columns is not None else _may_have(self.schema, field, self.schema)


class ServiceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A service, its docstring, and its APIs in the order of their definition.

    ``version`` is the author's; empty if the service has none.
    """

    name: str
    apis: list[ApiDescription]
    doc: str = ""
    version: str = ""


def group_sources(api: str, group_by: object) -> list[Source]:
    """Return the sources that the ``group_by`` of an API names.

    Raises:
        DefinitionError: if it is wrong.
    """
    try:
        return sources_of(group_by)
    except ValueError as error:
        raise DefinitionError(f"API {api!r}: {error}") from None


def header_names(api: str, headers: object) -> tuple[str, ...]:
    """Return the ``headers`` of an API in lower case.

    Raises:
        DefinitionError: if they are not names, or handlers must not read one.
    """
    accepted = "a tuple of names such as ('x-tenant',)"
    if not isinstance(headers, tuple | list):
        hint = f"; write headers=({headers!r},)" if isinstance(headers, str) else ""
        raise wrong_value(api, "headers", accepted, headers, hint)
    names: list[str] = []
    for name in headers:
        if not isinstance(name, str) or not is_header_name(name):
            raise wrong_value(api, "headers", accepted, headers)
        if name.lower() in _SECRET_HEADERS:
            raise DefinitionError(
                f"API {api!r}: headers names {name!r}, which may hold credentials; handlers cannot read it. "
                "Have a proxy in front check it and send what the handler needs, such as 'x-tenant'"
            )
        if name.lower() in names:
            raise DefinitionError(f"API {api!r}: headers names {name!r} twice; remove one")
        names.append(name.lower())
    return tuple(names)


def check_classes(api: str, classes: object) -> None:
    """Check the ``classes`` of an API.

    Raises:
        DefinitionError: if they are wrong.
    """
    accepted = "two names with goals in milliseconds, such as {'interactive': 100, 'bulk': 10_000}"
    if not isinstance(classes, Mapping) or len(classes) != 2:
        raise wrong_value(api, "classes", accepted, classes)
    for name in classes:
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise wrong_value(api, "the name of a class", "letters, digits, '-' and '_'", name)
    first, second = classes.values()
    _check_number(api, "the goal of the first class", first, unit="milliseconds", most=1000 * MAX_SECONDS)
    if second is None:
        return
    _check_number(api, "the goal of the second class", second, unit="milliseconds", most=1000 * MAX_SECONDS)
    if not first < second:
        raise DefinitionError(
            f"API {api!r}: the goals of classes must rise, got {first!r} and {second!r}; list the class with "
            "the shorter goal first"
        )


def first_goal(api: str, mb_max_latency: float | None, classes: object) -> float:
    """Return the goal of an API's requests, or of the first of its ``classes``, in milliseconds.

    Raises:
        DefinitionError: if the classes are wrong, or both are given.
    """
    if classes is None:
        return ApiSettings().mb_max_latency if mb_max_latency is None else mb_max_latency
    if mb_max_latency is not None:
        raise DefinitionError(
            f"API {api!r}: classes and mb_max_latency exclude each other; remove mb_max_latency, the goal of "
            "the first class replaces it"
        )
    check_classes(api, classes)
    goal_ms: float = next(iter(classes.values()))  # type: ignore[attr-defined]
    return goal_ms


def _may_have(schema: Mapping[str, Any], field: str, root: Mapping[str, Any]) -> bool:
    """Return whether a JSON schema allows objects with this field; unknown keywords allow anything."""
    reference = schema.get("$ref", "")
    if reference:
        schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    choices = schema.get("anyOf")
    if choices is not None:
        return any(_may_have(choice, field, root) for choice in choices)
    types = schema.get("type", "object")
    if "object" not in ([types] if isinstance(types, str) else types):
        return False
    return field in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def field_cost(row: bytes | msgspec.Raw, field: str) -> float:
    """Return the cost of a row, given as JSON text, from its ``field``.

    A number is the cost itself. A string, list or object costs the bytes of its JSON text, a string without
    its quotes and at least 1.

    Raises:
        ValueError: if the row has no such field, or the field holds none of these.
    """
    try:
        fields = _fields_decoder.decode(row)
    except msgspec.ValidationError:
        raise ValueError(f"each row must be an object with the cost field {field!r}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body is not valid JSON: {json_fault(bytes(row), error)}") from error
    if field not in fields:
        raise ValueError(f"the field {field!r} is missing")
    text = bytes(fields[field])
    first = text[:1]
    if first in (b"[", b"{"):
        return len(text)
    if first == b'"':
        return max(1, len(text) - len(b'""'))
    number = float(text) if first == b"-" or first.isdigit() else 0.0
    if not 0 < number <= MAX_COST:
        raise ValueError(
            f"the cost field {field!r} must be a number above 0 and at most {MAX_COST}, a string, a list or "
            f"an object, got {text[:_SHOWN_CHARACTERS].decode()}"
        )
    return rounded_cost(number)


def rounded_cost(number: float) -> float:
    """Round a cost to the nearest positive multiple of 2**-16."""
    return max(1, round(number * _COST_UNITS)) / _COST_UNITS


def is_count(value: object, *, most: int = MAX_COUNT) -> TypeGuard[int]:
    """Return whether a value is a whole number from 1 to ``most``."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _is_number(value: object, *, most: float) -> bool:
    """Return whether a value is a number above 0 and at most ``most``."""
    # An integer may be too large to convert to a float, so compare instead.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


def wrong_value(api: str, argument: str, accepted: str, value: object, hint: str = "") -> DefinitionError:
    return DefinitionError(f"API {api!r}: {argument} must be {accepted}, got {value!r}{hint}")


def not_for_streams(api: str, argument: str, reason: str) -> DefinitionError:
    return DefinitionError(f"API {api!r}: {argument} does not apply to streaming: {reason}; remove it")


def is_reserved(route: str) -> bool:
    """Return whether the gateway uses a path itself, now or in a later version."""
    return route in RESERVED_ROUTES or route.startswith(RESERVED_PREFIXES)


def check_route(api: str, route: object) -> None:
    """Check that a route is a plain path that the gateway does not use itself.

    Raises:
        DefinitionError: if it is not.
    """
    if not isinstance(route, str) or not route.startswith("/") or route == "/":
        raise wrong_value(api, "route", f"a path such as '/{api}'", route)
    if any(mark in route for mark in "{}?# \t\r\n"):
        raise DefinitionError(
            f"API {api!r}: route {route!r} must be a plain path without {{}}, ?, # or spaces"
        )
    if is_reserved(route):
        taken = ", ".join((*RESERVED_ROUTES, *RESERVED_PREFIXES))
        raise DefinitionError(f"API {api!r}: route {route!r} is reserved by the gateway (reserved: {taken})")


def _check_number(api: str, argument: str, value: object, *, unit: str, most: int) -> None:
    if not _is_number(value, most=most):
        accepted = f"a positive number of {unit}" + _at_most(value, most)
        raise wrong_value(api, argument, accepted, value, _unquoted(value))


def _check_count(api: str, argument: str, value: object, *, unit: str, most: int) -> None:
    if not is_count(value, most=most):
        hint = _unquoted(value, whole=True)
        accepted = f"an integer number of {unit}, at least 1" + _at_most(value, most)
        raise wrong_value(api, argument, accepted, value, hint)


def _at_most(value: object, most: int) -> str:
    """Return the upper limit for an error message, if the value exceeds it."""
    return f" and at most {most}" if isinstance(value, int | float) and most < value < math.inf else ""


def _unquoted(value: object, *, whole: bool = False) -> str:
    """Suggest the number if the value is a positive number in quotes."""
    try:
        number = float(value) if isinstance(value, str) else 0.0
    except ValueError:
        return ""
    is_meant = 0 < number < math.inf and (number.is_integer() or not whole)
    return f"; write {number:.15g}" if is_meant else ""


def _check_sizes(api: str, sizes: object) -> None:
    if sizes is None:
        return
    fine = isinstance(sizes, tuple) and sizes and all(is_count(size) for size in sizes)
    if not fine or list(sizes) != sorted(set(sizes)):  # type: ignore[call-overload]
        raise wrong_value(
            api, "allowed_batch_sizes", f"a list of increasing integers from 1 to {MAX_COUNT}", sizes
        )


def _check_lengths(api: str, lengths: object) -> None:
    if lengths is None:
        return
    if isinstance(lengths, tuple) and lengths and all(_is_number(each, most=MAX_COST) for each in lengths):
        units = [rounded_cost(each) for each in lengths]
        if units == sorted(set(units)):
            return
    accepted = f"a list of increasing numbers, above 0 and at most {MAX_COST}"
    raise wrong_value(api, "allowed_lengths", accepted, lengths)


def _check_cost(api: str, cost: object) -> None:
    if cost is None or (isinstance(cost, str) and cost):
        return
    if not _is_number(cost, most=MAX_COST):
        accepted = f"a number above 0 and at most {MAX_COST}, {COST_IN_BYTES!r} or the name of a field"
        raise wrong_value(api, "cost", accepted, cost)
