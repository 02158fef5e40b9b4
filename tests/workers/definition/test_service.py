"""The @api decorator and the service description."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.outputs.media_types import Csv
from uncork_workers.definition.outputs.media_types import Json as OutputJson
from uncork_workers.definition.service import Service, api, describe_service, find_apis
from uncork_workers.wire.schema import ApiSettings


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


def test_an_example_is_kept_for_the_workers() -> None:
    class Warm(Service):
        @api(input=NdArray(shape=(2,)), warmup=np.ones(2))
        def predict(self, rows: Any) -> Any:
            return rows

    (definition,) = find_apis(Warm)

    assert definition.sample == Sample(b"[1.0,1.0]")
    [api_] = describe_service(Warm).apis
    assert (api_.example, api_.example_type) == (b"[1.0,1.0]", "application/json")


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


@pytest.mark.parametrize(("handler", "streams"), [(generator, True), (stream, True), (predict, False)])
def test_generators_stream(handler: Any, *, streams: bool) -> None:
    decorated = api(input=Json(), policy="none")(handler)
    service = type("Streaming", (Service,), {handler.__name__: decorated})

    [described] = describe_service(service).apis

    assert described.streams == streams


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
