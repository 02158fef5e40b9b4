"""The @api decorator and the service description."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uncork_workers.definition.adapters import Json, NdArray, Requests
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.outputs.media_types import Csv, Output
from uncork_workers.definition.outputs.media_types import Json as OutputJson
from uncork_workers.definition.service import Service, api, describe_service, find_apis
from uncork_workers.wire.schema import ApiSettings
from uncork_workers.wire.values import DefinitionError


def refusal(decorate: Any, handler: object) -> str:
    with pytest.raises(DefinitionError) as caught:
        decorate(handler)
    return str(caught.value)


def predict(self: Service, rows: Any) -> Any:
    return rows


def method(name: str) -> Any:
    """Return a new method, as @api marks each that it decorates."""

    def plain(self: Service, rows: Any) -> Any:
        return rows

    plain.__name__ = name
    return plain


class Plain(Service):
    """A service with one api, all defaults."""

    @api(input=Json())
    def predict(self, items: list[Any]) -> list[Any]:
        """Say it again.

        Twice.
        """
        return items


def test_an_api_has_the_name_of_its_method_and_the_defaults() -> None:
    service = describe_service(Plain)

    assert service.name == "Plain"
    (described,) = service.apis
    assert (described.name, described.route) == ("predict", "/predict")
    assert described.input == {"kind": "json"}
    assert described.settings == ApiSettings()
    assert described.errors == "problem"
    assert described.doc == "Say it again.\n\nTwice."


def test_every_argument_arrives_in_the_description() -> None:
    settings: dict[str, Any] = {
        "mb_max_latency": 50,
        "mb_max_batch_size": 7,
        "mb_max_batch_bytes": 8,
        "policy": "fixed:5",
        "timeout": 9,
        "idempotent": False,
        "cost": 2.5,
    }
    adapter = NdArray(dtype="int8", shape=(4,))
    tuned = api(input=adapter, route="/classify/it", errors="openai", **settings)(method("predict"))

    (described,) = describe_service(type("Tuned", (Service,), {"predict": tuned})).apis

    assert described.route == "/classify/it"
    assert described.errors == "openai"
    assert described.input == {"kind": "ndarray", "dtype": "int8", "shape": [4]}
    assert described.settings == ApiSettings(**settings)
    assert described.doc == ""


NO_OUTPUT = "output must be an output adapter such as Csv(), or a list of them, got "
NO_ADAPTER = "input must be an adapter such as Json(), got "
NO_EXAMPLE = "warmup must be an example of one row: "


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mb_max_latency": -1}, "mb_max_latency must be a positive number of milliseconds, got -1"),
        ({"input": NdArray(), "cost": "text"}, "cost must be a number or 'bytes' for this input"),
        *(({"output": value}, f"{NO_OUTPUT}{value!r}") for value in ("csv", [], [Csv(), "json"], Csv)),
        *(({"route": value}, "route ") for value in ("predict", "/{x}", "/metrics", "/v2/x", 5)),
        *(
            ({"errors": value}, f"errors must be 'problem' or 'openai', got {value!r}")
            for value in ("rfc9457", "", None, ["problem"])
        ),
        *(({"input": value}, f"{NO_ADAPTER}{value!r}") for value in ("json", None, 5, dict)),
        *(
            ({"input": value}, f"{NO_ADAPTER}{value!r}; write input={value.__name__}()")
            for value in (Json, NdArray)
        ),
        (
            {"input": NdArray(shape=(2,)), "warmup": [1, 2, 3]},
            f"{NO_EXAMPLE}got a row of shape (3,); a row must",
        ),
        (
            {"input": NdArray(shape=(2,)), "warmup": [[1, 2]]},
            f"{NO_EXAMPLE}Expected `float`, got `array` - at ",
        ),
        ({"warmup": object()}, f"{NO_EXAMPLE}it cannot be written as JSON: object is not supported"),
        ({"warmup": {"a": 1}, "cost": "n"}, f"{NO_EXAMPLE}the field 'n' is missing"),
        (
            {"input": Requests(), "warmup": "text"},
            f"{NO_EXAMPLE}it must be bytes, a pathlib.Path or a Request, got",
        ),
        (
            {"input": Requests(), "warmup": Path("/nothing")},
            f"{NO_EXAMPLE}it cannot be read: [Errno 2] No such file",
        ),
        ({"input": Requests(), "warmup": b"{"}, f"{NO_EXAMPLE}the body is not valid JSON"),
    ],
    ids=count(),  # some texts have addresses
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], says: str) -> None:
    """A wrong example with the message that a client would get."""
    decorate: Any = api(**{"input": Json(), **arguments})

    assert refusal(decorate, predict).startswith(f"API 'predict': {says}")


@pytest.mark.parametrize("wrong", [5, Plain, len])
def test_only_a_function_is_a_handler(wrong: object) -> None:
    assert refusal(api(input=Json()), wrong).startswith("@api must decorate a method, got ")


def test_an_example_is_kept_for_the_workers() -> None:
    class Warm(Service):
        @api(input=NdArray(shape=(2,)), warmup=np.ones(2))
        def predict(self, rows: Any) -> Any:
            return rows

    (definition,) = find_apis(Warm)

    assert definition.sample == Sample(b"[1.0,1.0]")
    [api_] = describe_service(Warm).apis
    assert (api_.example, api_.example_type) == (b"[1.0,1.0]", "application/json")


class NoMediaType(Output):
    pass


@pytest.mark.parametrize("abstract", [Output, NoMediaType])
def test_an_output_without_a_media_type_cannot_be_made(abstract: type[Output]) -> None:
    with pytest.raises(TypeError) as caught:
        abstract()
    assert str(caught.value) == (
        f"{abstract.__name__} has no media_type; use Json(), Csv(), Npy() or Image(), or set media_type "
        "in a subclass of Output"
    )


def test_an_api_offers_what_its_outputs_say() -> None:
    class Two(Service):
        @api(input=Json(), output=[Csv(), OutputJson(), Csv()])
        def tables(self, items: Any) -> Any:
            """CSV first."""

        @api(input=Json())
        def unsaid(self, items: Any) -> Any:
            """As ever."""

    tables, unsaid = describe_service(Two).apis
    assert tables.offers == ("text/csv", "application/json")
    assert unsaid.offers[0] == "application/json"


async def stream(self: Service, rows: Any) -> AsyncIterator[Any]:
    yield rows


def generator(self: Service, rows: Any) -> Iterator[Any]:
    yield rows


def without_self(rows: Any) -> Any:
    """A handler whose writer forgot self."""


def without_rows(self: Service) -> Any:
    """A handler that takes nothing."""


def with_more(self: Service, rows: Any, more: Any) -> Any:
    """A handler with an argument too many."""


def with_keyword(self: Service, rows: Any, *, more: Any) -> Any:
    """A handler with a keyword-only argument."""


@pytest.mark.parametrize(("handler", "streams"), [(generator, True), (stream, True), (predict, False)])
def test_generators_stream(handler: Any, *, streams: bool) -> None:
    decorated = api(input=Json(), policy="none")(handler)
    service = type("Streaming", (Service,), {handler.__name__: decorated})

    [described] = describe_service(service).apis

    assert described.streams == streams


@pytest.mark.parametrize("handler", [generator, stream])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "a generator streams its responses, one request at a time; set policy='none', or return a list"),
        ({"policy": "fixed"}, "a generator streams its responses, one request at a time; set policy='none'"),
        (
            {"output": Csv()},
            "output does not apply to streaming: the first piece determines the content type; remove it",
        ),
        ({"cost": 1}, "cost does not apply to streaming: execution times are not predicted; remove it"),
        (
            {"allowed_batch_sizes": [1]},
            "allowed_batch_sizes does not apply to streaming: requests are not batch",
        ),
        (
            {"allowed_lengths": [1]},
            "allowed_lengths does not apply to streaming: requests are not batched; remove it",
        ),
        ({"warmup": 1}, "warmup does not apply to streaming: setup can run the model instead; remove it"),
        *(
            ({argument: value}, f"{argument} does not apply to streaming: ")
            for argument, value in (
                *(("group_by", "language"), ("classes", {"a": 100, "b": None}), ("coalesce", True)),
                *(("prepare", predict), ("finish", predict)),
            )
        ),
    ],
)
def test_what_makes_no_sense_with_a_generator_is_refused(
    handler: Any, arguments: dict[str, Any], reason: str
) -> None:
    given = arguments if "policy" in arguments or not arguments else {"policy": "none", **arguments}

    message = refusal(api(input=Json(), **given), handler)

    assert message.startswith(f"API {handler.__name__!r}: {reason}")


@pytest.mark.parametrize("handler", [without_self, without_rows, with_more, with_keyword])
def test_a_handler_takes_self_and_the_rows(handler: Any) -> None:
    name = handler.__name__

    message = refusal(api(input=Json()), handler)

    assert message.startswith(f"API {name!r}: the handler is called with self and the rows of the batch")
    assert f"write def {name}(self, rows), not def {name}(" in message


def test_a_handler_may_have_more_parameters_that_need_not_be_given() -> None:
    def loose(self: Service, *rows: Any, verbose: bool = False, **more: Any) -> Any: ...

    api(input=Json())(loose)


class Base(Service):
    @api(input=Json())
    def zebra(self, items: Any) -> Any:
        """First, though not in the alphabet."""

    @api(input=Json())
    def ant(self, items: Any) -> Any:
        """Second."""

    def helper(self, items: Any) -> Any:
        """No api."""


class Derived(Base):
    """Another api, one that replaces an inherited one, and a replacement that is no api."""

    @api(input=Json())
    def bee(self, items: Any) -> Any:
        """Last."""

    @api(input=NdArray(), route="/new")
    def zebra(self, rows: Any) -> Any:
        """Replaced."""


class Hidden(Base):
    """Takes an api away."""

    def zebra(self, items: Any) -> Any:
        """No api any more."""


@pytest.mark.parametrize(
    ("service", "routes"),
    [(Base, ["/zebra", "/ant"]), (Derived, ["/new", "/ant", "/bee"]), (Hidden, ["/ant"])],
)
def test_apis_are_found_in_the_order_of_their_definition(service: type[Service], routes: list[str]) -> None:
    """A subclass can add, replace and remove some."""
    assert [described.route for described in describe_service(service).apis] == routes


async def fetch(self: Service, rows: Any) -> Any:
    return rows


JSON = api(input=Json())
STAGE, API = method("predict"), JSON(method("predict"))
PREPARED = api(input=Json(), prepare=STAGE)(method("also"))
_STAGE = "must be a method of Odd that is no API, got "


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"predict": STAGE}, r"service Odd has no API; decorate .* with @api"),
        # The description would have one name, the service another.
        ({"classify": API}, "API 'predict' has another name in the class: 'classify'"),
        (
            {"also": api(input=Json(), route="/predict")(method("also")), "predict": API},
            "APIs 'also' and 'predict' have the same route '/predict'",
        ),
        ({"also": PREPARED}, f"API 'also': prepare {_STAGE}"),
        ({"predict": API, "also": api(input=Json(), finish=API)(method("also"))}, f"finish {_STAGE}"),
        (
            {"predict": STAGE, "also": PREPARED, "last": api(input=Json(), finish=STAGE)(method("last"))},
            "API 'also': predict is prepare here and finish too, in two threads",
        ),
        (
            {"predict": STAGE, "also": PREPARED, "fetch": api(input=Json(), concurrency=2)(fetch)},
            "API 'fetch' has concurrency and API 'also' has prepare or finish",
        ),
    ],
)
def test_apis_that_do_not_fit_together_are_refused(members: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        find_apis(type("Odd", (Service,), members))
