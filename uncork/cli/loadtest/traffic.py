"""The options that ``uncork loadtest``, ``compare`` and ``tune`` share, and the plan they describe."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncork.cli.usage import in_options, named
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import argument, flags, option
from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.traffic.payloads import load_function, payload_of_files
from uncork_loadtests.traffic.plan import REPLAY, Payload, Plan, recorded
from uncork_loadtests.traffic.random_rows import RandomRows, parse_range, parse_shape

MOST_CLIENTS = 100_000
NOWHERE = "http://service/"
"""The URL of a plan until its server runs."""
# Errors of a plan name its fields.
_OPTIONS = flags("max_connections", "clients", "processes", "seconds") | {
    "warmup_s": "--warmup-seconds",
    "think_s": "--think-ms",
    "goal_s": "--goal-ms",
    "url": "TARGET",
}


def json_option() -> Any:
    return option(
        None, "Write the results as JSON to this file; - prints them instead of the tables.", metavar="FILE"
    )


def service_argument() -> Any:
    return argument(..., "The service to run, as MODULE:SERVICE or FILE.py:SERVICE.", metavar="SERVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """The options of every command that puts traffic on a service.

    Attributes:
        given: the names of the options that are on the command line.
    """

    arrivals: str = option(
        "poisson",
        f"Open loop: arrival process, one of {', '.join(ARRIVALS)}. A recording has one time in seconds per "
        "line; --rate scales it to that rate.",
        metavar="KIND",
    )
    seed: int = option(1, "Seed for arrivals and random rows.", min=0)
    data: Path | None = option(None, "Request body: the content of this file.", metavar="FILE")
    lines: Path | None = option(None, "Request bodies: one per line of this file.", metavar="FILE")
    rows: int = option(1, "Random rows per request, with --shape.", min=1, max=1_000_000)
    shape: str | None = option(
        None, "Request body: random rows of numbers of this shape, as JSON.", metavar="N,N..."
    )
    value_range: str | None = option(
        None,
        "Range of the numbers of --shape: 0,255 for integers, 0.0,1.0 for floats.",
        "--range",
        metavar="LOW,HIGH",
        show_default="from the service's /openapi.json, else 0.0,1.0, or 0,9 for integers",
    )
    function: str | None = option(
        None,
        "Request body: MODULE:FUNCTION or FILE.py:FUNCTION, a function that takes the number of a request "
        "and returns its body, or its body and the expected response.",
        metavar="NAME",
    )
    expected: Path | None = option(
        None, "Expected response to --data; to --lines, one per line.", metavar="FILE"
    )
    content_type: str = option("application/json", "Content-Type of requests.")
    header: list[str] | None = option(
        None, "Header to send with every request; may be repeated.", metavar="NAME:VALUE"
    )
    processes: int = option(1, "Load generator processes; at high rates, each needs a core.", min=1, max=1000)
    path: str | None = option(
        None,
        "Path to post to: the route of an API of the service, or /SERVICE/API.",
        show_default="the route of its first API",
    )
    json: str | None = json_option()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(TrafficOptions):
    """The options of the commands whose traffic may also be a closed loop."""

    rate: float | None = option(
        None,
        "Open loop: average requests per second.",
        max=1_000_000,
        show_default=f"the recorded rate with {REPLAY}FILE, else required",
    )
    clients: int | None = option(
        None,
        "Closed loop: number of clients, each of which sends its next request after the response to the "
        "last.",
        min=1,
        show_default="open loop",
        max=MOST_CLIENTS,
    )
    think_ms: float = option(
        0.0, "Closed loop: milliseconds that a client pauses after each response.", min=0
    )
    warmup_seconds: float = option(
        1.0, "Seconds of load before each measurement; an open loop warms up with Poisson arrivals.", min=0
    )
    max_connections: int = option(
        1024, "Open loop: maximum connections; further requests wait for a free one.", min=1, max=MOST_CLIENTS
    )
    workers: int = option(1, "Worker processes per server of the service.", min=1, max=10_000)
    mb_max_latency: float | None = option(
        None, "Latency goal of the service in milliseconds.", show_default="set per API, else 300"
    )


_OF_SERVICE = flags("path", "workers", "policy", "mb_max_latency")
_OF_OPEN = flags("rate", "arrivals", "max_connections")
TLS_OPTIONS = flags("ca", "insecure", "cert", "key")


def is_url(target: str) -> bool:
    return "://" in target


def plan_of(options: TrafficOptions, *, url: str = NOWHERE, **fields: Any) -> Plan:
    """Return the plan of a run; ``fields`` are those that differ from command to command.

    Raises:
        WrongUsage: if a value is out of range, or it is not clear what to send or when.
    """
    arrivals = options.arrivals
    payload = _payload(options)
    headers = tuple(_header_field(one) for one in options.header or [])
    if fields["rate"] is None and fields.get("clients") is None and not arrivals.startswith(REPLAY):
        raise WrongUsage(f"no load is given; set --rate, --clients or --arrivals {REPLAY}FILE")
    try:
        return Plan(
            url=url,
            payload=payload,
            content_type=options.content_type,
            headers=headers,
            arrivals=arrivals,
            seed=options.seed,
            processes=options.processes,
            **fields,
        )
    except OSError as error:
        raise WrongUsage(f"--arrivals: {error}") from None
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None


def load_fields(options: LoadOptions, *, seconds: float, goal_ms: float | None) -> dict[str, Any]:
    """Return the fields of a plan that may be a closed loop."""
    return {
        "rate": options.rate,
        "clients": options.clients,
        "think_s": options.think_ms / 1000,
        "seconds": seconds,
        "warmup_s": options.warmup_seconds,
        "max_connections": options.max_connections,
        "goal_s": None if goal_ms is None else goal_ms / 1000,
    }


def seconds_of(options: LoadOptions, seconds: float | None, *, default: float) -> float:
    """Return how long to measure; recorded arrivals at their own rate are measured to their end.

    Raises:
        WrongUsage: if the recording cannot be read.
    """
    is_recorded = options.rate is None and options.clients is None and options.arrivals.startswith(REPLAY)
    if seconds is not None or not is_recorded:
        return default if seconds is None else seconds
    try:
        times = recorded(options.arrivals)
    except (OSError, ValueError) as error:
        raise WrongUsage(f"--arrivals: {error}") from None
    # The last arrival must come before the end.
    return math.nextafter(times[-1] - times[0], math.inf)


def refuse_contradictions(given: frozenset[str], *, target: str = "") -> None:
    """Check that the options on the command line go together, and with a target that may be a URL.

    Raises:
        WrongUsage: if they do not.
    """
    if is_url(target) and (wrong := named(_OF_SERVICE, given)):
        raise WrongUsage(f"{wrong} requires a service as TARGET, got the URL {target!r}")
    if not target.startswith("https://") and (wrong := named(TLS_OPTIONS, given)):
        raise WrongUsage(f"{wrong} requires a TARGET that begins with https://, got {target!r}")
    if "clients" in given and (wrong := named(_OF_OPEN, given)):
        raise WrongUsage(f"--clients runs a closed loop and cannot be combined with {wrong}")
    if "clients" not in given and "think_ms" in given:
        raise WrongUsage("--think-ms requires --clients (a closed loop)")
    for name, flag in {"rows": "--rows", "value_range": "--range"}.items():
        if name in given and "shape" not in given:
            raise WrongUsage(f"{flag} requires --shape")
    if "expected" in given and not {"data", "lines"} & given:
        raise WrongUsage("--expected requires --data or --lines")


def _payload(options: TrafficOptions) -> Payload:
    data, lines, shape, function = options.data, options.lines, options.shape, options.function
    kinds = {"--data": data, "--lines": lines, "--shape": shape, "--function": function}
    chosen = [name for name, value in kinds.items() if value is not None]
    if len(chosen) != 1:
        raise WrongUsage(
            f"set the request body with exactly one of {', '.join(kinds)}; got {', '.join(chosen) or 'none'}"
        )
    try:
        if function is not None:
            load_function(function)
            return Payload(function=function)
        if shape is not None:
            numbers = None if options.value_range is None else parse_range(options.value_range)
            return Payload(random=RandomRows(shape=parse_shape(shape), rows=options.rows, numbers=numbers))
        return payload_of_files(data or lines or Path(), options.expected, lines=lines is not None)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _header_field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable():
        raise WrongUsage(f"--header must be NAME:VALUE, got {text!r}")
    return name.strip(), value.strip()
