"""The schema of a service: its APIs, their settings, inputs and outputs.

The gateway never imports user code; a worker sends this description of it.
"""

import math
from typing import Annotated, Any, Literal, get_args

import msgspec

from uncork_workers.wire.costs import COST_IN_BYTES
from uncork_workers.wire.groups import Source, group_of_row, may_have
from uncork_workers.wire.values import (
    MAX_BATCH_BYTES,
    MAX_COUNT,
    MAX_SECONDS,
    DefinitionError,
    check_classes,
    check_cost,
    check_count,
    check_lengths,
    check_number,
    check_sizes,
    group_sources,
    not_for_streams,
    wrong_value,
)

JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
MULTIPART = "multipart/form-data"
# Each batch has a thread.
MAX_CONCURRENCY = 1000
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
REQUEST_ID = "x-request-id"
"""The header that names a request; every request has one."""


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
        check_number(api, "mb_max_latency", self.mb_max_latency, unit="milliseconds", most=1000 * MAX_SECONDS)
        check_number(api, "timeout", self.timeout, unit="seconds", most=MAX_SECONDS)
        check_count(api, "mb_max_batch_size", self.mb_max_batch_size, unit="rows", most=MAX_COUNT)
        check_count(api, "mb_max_batch_bytes", self.mb_max_batch_bytes, unit="bytes", most=MAX_BATCH_BYTES)
        if not isinstance(self.policy, str):
            raise wrong_value(api, "policy", "a string", self.policy)
        if not isinstance(self.idempotent, bool):
            raise wrong_value(api, "idempotent", "True or False", self.idempotent)
        check_cost(api, self.cost)
        check_sizes(api, self.allowed_batch_sizes)
        check_lengths(api, self.allowed_lengths)
        if self.workers is not None:
            check_count(api, "workers", self.workers, unit="workers", most=MAX_COUNT)


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
    def contract(self) -> int:
        """A number for all that a request's body and response depend on.

        A request can run on any worker whose API has the contract under which it was accepted.
        """
        rules = (
            self.input,
            self.offers,
            self.answers_each,
            self.streams,
            self.task,
            self.group_by,
            self.headers,
        )
        return hash(repr(rules))

    @property
    def sources(self) -> list[Source]:
        return group_sources(self.name, self.group_by)

    @property
    def group_fields(self) -> list[str]:
        """The fields of a row that ``group_by`` names."""
        return [source.name for source in self.sources if source.kind == "field"]

    def group_of(self, row: bytes) -> bytes | None:
        """As :func:`group_of_row`; None if the API has no ``group_by``."""
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
        return field in columns if columns is not None else may_have(self.schema, field, self.schema)


class ServiceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A service, its docstring, and its APIs in the order of their definition.

    ``version`` is the author's; empty if the service has none.
    """

    name: str
    apis: list[ApiDescription]
    doc: str = ""
    version: str = ""


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
