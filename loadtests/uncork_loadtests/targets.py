"""Our own services as targets of a load test: start one, and read its APIs, schema and estimate.

The schema comes from its OpenAPI document, which other servers may have too.
"""

import contextlib
import ssl
import sys
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import msgspec

from uncork_loadtests.servers import HOST, BenchError, Server, reserved_port, serve
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.traffic.random_rows import Numbers, numbers_in

CLASS_HEADER = "X-Request-Class"

_SECONDS = 5.0
_MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The gateway's estimate of a batch, from `/status`: intercept + slope * rows, or slope * cost."""

    intercept_ms: float
    slope_ms: float
    counts: str = "rows"
    """Unit of the slope: rows or cost."""
    padding: "Padding | None" = None


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How the lengths of rows affect the batch times of an API, from `/status`."""

    measure: str
    """What batch times depend on: sum, longest, bytes or longest_bytes."""
    share: float
    """Share of the work of the last batches that was padding."""
    length_limit: float | None = None
    """Length beyond which rows take no more time; None if none is known."""


@dataclass(frozen=True, kw_only=True)
class RequestClass:
    """A class of an API's requests, from `/status`."""

    name: str
    goal_ms: float | None


@dataclass(frozen=True, kw_only=True)
class Api:
    """An API of a running service, from `/status`."""

    name: str
    route: str
    goal_ms: float | None
    service: str = ""
    """The name of its service."""
    classes: tuple[RequestClass, ...] = ()
    """The classes of its requests, the default first; empty if it has one."""
    streams: bool = False
    """Whether it streams its responses; then it does not batch, and its goal does not apply."""
    counts: str = "rows"
    """Unit of its estimate and limits: rows or cost."""
    workers: int = 1
    """The number of its batches that can run at once."""
    estimate: Estimate | None = None
    """None if the gateway knows too few batches."""
    padding: Padding | None = None
    """None if no batch is known to have had rows of different lengths, or the gateway does not report it."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the gateway that lead to it."""
        return self.route, f"/{self.service}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class _Status:
    apis: list[Api]


class NoSuchApi(Exception):
    """There is no such API or class, or there are several APIs; the message lists them."""


@contextlib.contextmanager
def our_service(target: str, *, options: Sequence[str] = ()) -> Iterator[Server]:
    """Run `uncork serve TARGET` with more options on a free port until the block ends; see `serve`."""
    # Always with an admin port of its own: a configured one may be taken, and on it no page needs a key.
    # Nor is it to begin with what another run has learned, or to leave what it learns. With the variable, it
    # does without the other configured listeners, and TLS.
    with reserved_port() as admin_port:
        admin = ["--admin-host", HOST, "--admin-port", str(admin_port)]
        python = ["env", "UNCORK_LOAD_TEST=1", sys.executable]
        command = [*python, "-m", "uncork", "serve", target, *options, *admin, "--no-state"]
        with serve(f"uncork serve {target}", command=command) as server:
            yield replace(server, admin_port=admin_port)


def apis(server: Server) -> list[Api]:
    """Return the APIs of a service, in their order; raise BenchError if `/status` does not answer."""
    try:
        reply = _get(server.admin_url("/status"))
        if reply.status_code != 200:
            raise BenchError(f"{server.name}: GET /status returned {reply.status_code}: {reply.text[:200]}")
        return msgspec.json.decode(reply.content, type=_Status).apis
    except httpx.HTTPError as error:
        raise BenchError(f"{server.name}: GET /status failed: {error}") from None
    except msgspec.MsgspecError as error:
        raise BenchError(f"{server.name}: /status cannot be read: {error}") from None


def api_at(path: str | None, *, of: Sequence[Api], batches: bool = False) -> Api:
    """Return the API at a path, or the first. With `batches`, only an API that batches.

    Raises:
        NoSuchApi: if there is none.
    """
    at_path = [one for one in of if path is None or path in one.paths]
    if not at_path:
        raise NoSuchApi(f"no API at {path}; the service has {', '.join(one.route for one in of)}")
    found = next((one for one in at_path if not (batches and one.streams)), None)
    if found is None:
        raise NoSuchApi(
            f"the API at {at_path[0].route} streams its responses, which are not batched; measure it with "
            "uncork loadtest"
        )
    return found


def aimed(plan: Plan, server: Server, *, path: str | None) -> Plan:
    """Return the plan for the API at a path of a server, or for its first API; it must batch."""
    return aimed_at(api_at(path, of=apis(server), batches=True), plan, server)


def aimed_at(api: Api, plan: Plan, server: Server) -> Plan:
    """Return the plan for an API, with its goal and number range where the plan has none.

    The plan's headers say which class's goal applies.

    Raises:
        NoSuchApi: if the API has no such class.
    """
    goal_s, goal_ms = plan.goal_s, _goal_ms(api, plan)
    if goal_s is None and goal_ms is not None and not api.streams:
        goal_s = goal_ms / 1000
    return fitted(replace(plan, url=server.url(api.route), goal_s=goal_s))


def _goal_ms(api: Api, plan: Plan) -> float | None:
    named = [value for name, value in plan.headers if name.lower() == CLASS_HEADER.lower()]
    if not named:
        return api.goal_ms
    for one in api.classes:
        if one.name == named[0]:
            return one.goal_ms
    has = " and ".join([one.name for one in api.classes]) or "no classes"
    raise NoSuchApi(f"the API at {api.route} has no class {named[0]!r}; it has {has}")


def aimed_at_url(plan: Plan) -> Plan:
    """Return the plan for its URL; if that has no path, for the only API of the server there.

    Raises:
        NoSuchApi: if the server has several.
    """
    parts = urllib.parse.urlsplit(plan.url)
    if parts.path not in ("", "/"):
        return fitted(plan)
    routes = routes_in(_document(plan) or {})
    # Other servers may answer at the root, or have no document.
    if not routes or "/" in routes:
        return fitted(plan)
    first = parts._replace(path=routes[0]).geturl()
    if len(routes) > 1:
        named = ", ".join(routes[:_MOST_NAMED])
        more = f" and {len(routes) - _MOST_NAMED} more" if len(routes) > _MOST_NAMED else ""
        raise NoSuchApi(
            f"{plan.url} does not name an API; append a route, as in {first}; the server has {named}{more}"
        )
    return fitted(replace(plan, url=first))


def fitted(plan: Plan) -> Plan:
    """Return the plan with bodies made of its random rows, if it has any.

    If the plan has no number range, the server's `/openapi.json` decides.
    """
    random = plan.payload.random
    if random is None:
        return plan
    if random.numbers is None:
        random = replace(random, numbers=_numbers_for(plan) or Numbers())
    return replace(plan, payload=Payload(bodies=random.bodies(seed=plan.seed), random=random))


def _numbers_for(plan: Plan) -> Numbers | None:
    document = _document(plan)
    if document is None:
        return None
    path = urllib.parse.urlsplit(plan.url).path
    return numbers_in(document, path=described_path(document, path))


def _document(plan: Plan) -> dict[str, Any] | None:
    """Return the OpenAPI document of the plan's server, if it has one."""
    parts = urllib.parse.urlsplit(plan.url)
    url = f"{parts.scheme}://{parts.netloc}/openapi.json"
    try:
        reply = _get(url, headers=plan.headers, tls=plan.tls.context() if plan.is_https else True)
        document = msgspec.json.decode(reply.content)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, UnicodeDecodeError):
        return None  # the document is optional, and the run itself reports an unreachable server
    return document if isinstance(document, dict) else None


def padding(server: Server, *, path: str) -> Padding | None:
    """Return how lengths affect the batch times of the API at a path; None if unknown."""
    api = _now(server, path)
    return None if api is None else api.padding


def estimate(server: Server, *, path: str) -> Estimate | None:
    """Return the gateway's current estimate of the batches of the API at a path; None if it has none."""
    api = _now(server, path)
    if api is None or api.estimate is None:
        return None
    return replace(api.estimate, counts=api.counts, padding=api.padding)


def _now(server: Server, path: str) -> Api | None:
    try:
        return api_at(path, of=apis(server))
    except (BenchError, NoSuchApi):
        return None


def _get(
    url: str, *, headers: Sequence[tuple[str, str]] = (), tls: ssl.SSLContext | bool = True
) -> httpx.Response:
    # Like the generators, ignore proxies named by the environment.
    return httpx.get(url, headers=list(headers), verify=tls, timeout=_SECONDS, trust_env=False)


# Models of other protocols, besides the routes of the APIs themselves.
_OF_MODELS = ("/v1/models/", "/v2/")

Document = Mapping[str, Any]


def routes_in(document: Document) -> list[str]:
    """Return the paths of a document that take a POST, one for each API, without those with parameters."""
    posts = _posts(document)
    names = [post.get("operationId") for post in posts.values()]
    return [
        path
        for path, post in posts.items()
        if "{" not in path and not path.startswith(_OF_MODELS) and not _is_further(path, post, names)
    ]


def _is_further(path: str, post: Mapping[str, Any], names: Sequence[Any]) -> bool:
    """Return whether a path is another route of an API that has its own: a text model has several."""
    name, end = str(post.get("operationId")), path.replace("/", ".")
    return name.endswith(end) and name.removesuffix(end) in names


def described_path(document: Document, path: str) -> str:
    """Return the path under which a document describes an API of a gateway at ``/SERVICE/API``.

    Other paths stay as they are.
    """
    posts = _posts(document)
    if path in posts:
        return path
    service, _, api = path.strip("/").partition("/")
    # A gateway with one service leaves out its name.
    for operation in (f"{service}.{api}", api):
        for known, post in posts.items():
            if post.get("operationId") == operation:
                return known
    return path


def _posts(document: Document) -> dict[str, dict[str, Any]]:
    paths = document.get("paths")
    items = paths.items() if isinstance(paths, dict) else ()
    return {
        path: item["post"]
        for path, item in items
        if isinstance(item, dict) and isinstance(item.get("post"), dict)
    }
