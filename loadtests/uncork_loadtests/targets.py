"""A service of ours as the target of a load test: started, asked for its routes and its estimate, ended."""

import contextlib
import http.client
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from uncork_loadtests.servers import HOST, Server, serve

_SECONDS = 5.0
_API = re.compile(r"^ *POST http://[^/\s]+(/\S*) +goal ([0-9.e+]+) ms", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the gateway takes a batch to last: intercept + slope * rows."""

    intercept_ms: float
    slope_ms: float


@dataclass(frozen=True, kw_only=True)
class Api:
    """An api of a running service."""

    route: str
    goal_ms: float


class NoSuchApi(Exception):
    """The service has no api at the path; the message lists those there are."""


@contextlib.contextmanager
def our_service(target: str, *, options: Sequence[str] = ()) -> Iterator[Server]:
    """Run `uncork serve TARGET` with further options on a free port until the block ends.

    Raises BenchError with what it wrote if it does not become ready.
    """
    command = [sys.executable, "-m", "uncork", "serve", target, *options]
    with serve(f"uncork serve {target}", command=command) as server:
        yield server


def apis(server: Server) -> list[Api]:
    """The apis of a service of ours, in their order, as it told when it started."""
    return [Api(route=route, goal_ms=float(goal)) for route, goal in _API.findall(server.banner)]


def api_at(path: str | None, *, of: Sequence[Api]) -> Api:
    """The api with this route; without a path, the first.

    Raises:
        NoSuchApi: if there is none.
    """
    found = next((one for one in of if path in (None, one.route)), None)
    if found is None:
        raise NoSuchApi(f"there is no api at {path}; there are {', '.join(one.route for one in of)}")
    return found


def estimate(server: Server, *, api: Api, of: Sequence[Api]) -> Estimate | None:
    """What the gateway estimates now; None if it does not say, or not whose estimate it is."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_SECONDS)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return read_estimate(text, name=api.route.strip("/") if len(of) > 1 else None)


def read_estimate(metrics: str, *, name: str | None) -> Estimate | None:
    """Find the estimate of the api `name` (None: of the only one) in Prometheus' text format."""
    found = {
        (sample.name, sample.labels.get("api")): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    names = {api for metric, api in found if metric == "uncork_estimate_slope_seconds"}
    chosen = name if name is not None or len(names) != 1 else names.pop()
    intercept_s = found.get(("uncork_estimate_intercept_seconds", chosen))
    slope_s = found.get(("uncork_estimate_slope_seconds", chosen))
    if intercept_s is None or slope_s is None:
        return None
    return Estimate(intercept_ms=intercept_s * 1000, slope_ms=slope_s * 1000)
