"""APIs, schemas and estimates of a service under load test."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from tests.loadtests.pages_server import serving_pages, status
from uncork_loadtests.servers import BenchError, Server, serve
from uncork_loadtests.targets import (
    Api,
    Estimate,
    NoSuchApi,
    Padding,
    RequestClass,
    aimed_at,
    aimed_at_url,
    api_at,
    apis,
    estimate,
    fitted,
    padding,
)
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.traffic.random_rows import Numbers, RandomRows

PREDICT = Api(name="predict", route="/v2/predict", goal_ms=50.0, service="digits")
RANDOM = RandomRows(shape=(2,))
ROWS = Payload(random=RANDOM)
BULK = (("X-Request-Class", "bulk"),)
BODY = Payload(bodies=(b"1",))
TELL = Api(name="tell", route="/tell", goal_ms=300.0, service="digits", streams=True)


def test_apis_are_those_of_the_status_page() -> None:
    shown: list[dict[str, object]] = [
        {"name": "predict", "route": "/v2/predict", "goal_ms": 50, "counts": "rows", "streams": False},
        {"name": "tell", "route": "/tell", "goal_ms": 300, "counts": "rows", "streams": True},
    ]
    for one in shown:
        one["service"] = "digits"
    with serving_pages({"/status": status(*shown)}) as admin, serving_pages({}) as server:
        assert apis(admin) == [PREDICT, TELL]
        assert apis(replace(server, admin_port=admin.port)) == [PREDICT, TELL]
        with pytest.raises(BenchError, match="it: GET /status returned 401: no"):
            apis(server)
    with (
        serving_pages({"/status": b'{"state": "ready"}'}) as server,
        pytest.raises(BenchError, match=r"it: /status cannot be read: .*missing required field `apis`"),
    ):
        apis(server)


def test_the_goal_is_that_of_the_class() -> None:
    """Of the class that a header names, the first by default; of no class without a goal."""
    classes = (RequestClass(name="interactive", goal_ms=50.0), RequestClass(name="bulk", goal_ms=None))
    api = replace(PREDICT, classes=classes)
    server = Server(name="it", command=(), port=1, pid=0)
    for headers, goal_s in [((), 0.05), ((("x-request-class", "interactive"),), 0.05), (BULK, None)]:
        plan = Plan(url="http://host/", payload=BODY, rate=1.0, headers=headers)
        assert aimed_at(api, plan, server).goal_s == goal_s
    with pytest.raises(NoSuchApi, match="the API at /v2/predict has no class 'bulk'; it has no classes"):
        aimed_at(PREDICT, plan, server)
    with pytest.raises(NoSuchApi, match="'fast'; it has interactive and bulk"):
        aimed_at(api, replace(plan, headers=(("X-Request-Class", "fast"),)), server)


def test_padding_is_that_of_the_status_page() -> None:
    """The document may have more figures, or none."""
    known = {"measure": "longest", "share": 0.125, "length_limit": None, "more": 1}
    one: dict[str, object] = {"name": "predict", "route": "/predict", "goal_ms": 50}
    with serving_pages({"/status": status({**one, "padding": known})}) as server:
        assert padding(server, path="/predict") == Padding(measure="longest", share=0.125)
        assert padding(server, path="/other") is None
    for shown in ({"/status": status(one)}, {"/status": status({**one, "padding": None})}, {}):
        with serving_pages(shown) as server:
            assert padding(server, path="/predict") is None


def test_an_estimate_has_the_unit_and_the_padding_of_its_api() -> None:
    """It is that of its service, where several have an API of one name."""
    padded = {"measure": "longest", "share": 0.125}
    digits: dict[str, object] = {
        "name": "predict",
        "route": "/predict",
        "goal_ms": 50,
        "service": "digits",
        "counts": "cost",
        "padding": padded,
        "estimate": {"intercept_ms": 20, "slope_ms": 0.2, "spread": 0.1},
    }
    wine = {**digits, "route": "/taste", "service": "wine", "counts": "rows", "padding": None}
    shown = status(digits, {**wine, "estimate": {"intercept_ms": 30, "slope_ms": 0.3}})
    with serving_pages({"/status": shown}) as server:
        found = estimate(server, path="/digits/predict")
        other = estimate(server, path="/taste")
        assert estimate(server, path="/tell") is None
    with serving_pages({"/status": status({**digits, "estimate": None})}) as server:
        assert estimate(server, path="/predict") is None

    known = Padding(measure="longest", share=0.125)
    assert found == Estimate(intercept_ms=20, slope_ms=0.2, counts="cost", padding=known)
    assert other == Estimate(intercept_ms=30, slope_ms=0.3)


def test_random_rows_fit_the_openapi_document() -> None:
    content = {"application/json": {"schema": {"type": "array", "items": {"type": "integer"}}}}
    document = {"paths": {"/predict": {"post": {"requestBody": {"content": content}}}}}
    with serving_pages({"/openapi.json": json.dumps(document).encode()}) as server:
        plan = Plan(url=server.url("/predict?x=1"), payload=ROWS, rate=1.0)
        [integers, numbers] = [fitted(plan), fitted(replace(plan, url=server.url("/other")))]

    assert integers.payload.random == replace(RANDOM, numbers=Numbers(low=0, high=9, integers=True))
    assert all(isinstance(one, int) for one in json.loads(integers.payload.bodies[0]))
    assert numbers.payload.random == replace(RANDOM, numbers=Numbers())
    assert fitted(plan).payload.random == replace(RANDOM, numbers=Numbers())  # there is no server any more


def test_numbers_that_the_user_chose_stay() -> None:
    numbers = Numbers(low=-3, high=3)
    plan = Plan(url="http://127.0.0.1:1/", payload=Payload(random=replace(RANDOM, numbers=numbers)), rate=1.0)

    assert fitted(plan).payload == Payload(
        random=replace(RANDOM, numbers=numbers),
        bodies=replace(RANDOM, numbers=numbers).bodies(seed=1),
    )
    assert fitted(replace(plan, payload=BODY)).payload is BODY


def test_without_a_path_the_first_api_is_meant() -> None:
    assert api_at(None, of=[TELL, PREDICT]) is TELL
    assert api_at("/v2/predict", of=[TELL, PREDICT]) is PREDICT
    assert api_at("/digits/predict", of=[TELL, PREDICT]) is PREDICT
    for path in ("/predict", "/wine/predict"):
        with pytest.raises(NoSuchApi, match=f"no API at {path}; the service has /tell, /v2/predict"):
            api_at(path, of=[TELL, PREDICT])


def document(**routes: str) -> bytes:
    content = {"application/json": {"schema": {"type": "array", "items": {"type": "integer"}}}}
    body = {"requestBody": {"content": content}}
    models: dict[str, object] = {
        "/v2/models/{model}/infer": {"post": {}},
        "/v1/models/a:predict": {"post": {}},
        "/docs": {"get": {}},
    }
    own = {route: {"post": {"operationId": name, **body}} for name, route in routes.items()}
    return json.dumps({"paths": {**own, **models}}).encode()


def plan_of(server: Server, path: str) -> Plan:
    return Plan(url=server.url(path), payload=ROWS, rate=1.0)


# A text model answers the clients of other servers at further routes.
TEXTS = {"embed.v1.embeddings": "/v1/embeddings", "embed.vectors": "/vectors", "embed": "/embed"}


@pytest.mark.parametrize(
    ("pages", "path", "expected"),
    [
        ({"/openapi.json": document(predict="/predict")}, "", "/predict"),
        ({"/openapi.json": document(predict="/predict")}, "/", "/predict"),
        ({"/openapi.json": document(predict="/predict")}, "?x=1", "/predict?x=1"),
        ({"/openapi.json": document(root="/", two="/two")}, "/", "/"),
        ({"/openapi.json": document(**TEXTS)}, "", "/embed"),
        ({"/openapi.json": b"[]"}, "/", "/"),
        ({}, "/", "/"),
    ],
)
def test_without_a_path_the_only_api_or_the_root_is_meant(
    pages: dict[str, bytes], path: str, expected: str
) -> None:
    with serving_pages(pages) as server:
        assert aimed_at_url(plan_of(server, path)).url == server.url(expected)


def test_a_server_with_several_apis_needs_one() -> None:
    """The message lists them; of very many, some."""
    with serving_pages({"/openapi.json": document(one="/one", two="/two")}) as server:
        with pytest.raises(NoSuchApi) as caught:
            aimed_at_url(plan_of(server, ""))
        assert aimed_at_url(plan_of(server, "/three")).url == server.url("/three")
    assert str(caught.value) == (
        f"{server.url('')} does not name an API; append a route, as in {server.url('/one')}; the server has "
        "/one, /two"
    )
    with (
        serving_pages({"/openapi.json": document(**{f"n{n}": f"/{n}" for n in range(12)})}) as server,
        pytest.raises(
            NoSuchApi, match=r"; the server has /0, /1, /2, /3, /4, /5, /6, /7, /8, /9 and 2 more$"
        ),
    ):
        aimed_at_url(plan_of(server, "/"))


@pytest.mark.parametrize(
    ("routes", "path", "is_known"),
    [
        ({"digits.predict": "/predict", "wine.predict": "/taste"}, "/wine/predict", True),
        ({"digits.predict": "/predict"}, "/wine/predict", False),
        ({"predict": "/own"}, "/digits/predict", True),
        ({"predict": "/own"}, "/digits", False),
    ],
)
def test_random_rows_fit_an_api_at_the_path_with_its_service(
    routes: dict[str, str], path: str, is_known: bool
) -> None:
    with serving_pages({"/openapi.json": document(**routes)}) as server:
        random = aimed_at_url(plan_of(server, path)).payload.random
    assert random is not None
    assert random.numbers == (Numbers(low=0, high=9, integers=True) if is_known else Numbers())


def test_what_batches_is_looked_for_among_those_that_do() -> None:
    assert api_at(None, of=[TELL, PREDICT], batches=True) is PREDICT
    with pytest.raises(NoSuchApi, match="the API at /tell streams its responses, which are not batched"):
        api_at("/tell", of=[TELL, PREDICT], batches=True)
    with pytest.raises(NoSuchApi, match="the API at /tell streams its responses, which are not batched"):
        api_at(None, of=[TELL], batches=True)


def test_a_server_that_is_not_ready_in_time_is_an_error() -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with (
        pytest.raises(BenchError, match="idle was not ready after 0 s"),
        serve("idle", command=command, ready_s=0),
    ):
        pass
