"""The options added to locust's, independent of locust."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.generator.samples import LOST, UNANSWERED
from uncork_loadtests.traffic.payloads import payload_of_files
from uncork_loadtests.traffic.plan import REPLAY, Payload, Plan
from uncork_loadtests.traffic.random_rows import RandomRows, parse_range, parse_shape

_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--path", {"default": "/predict", "help": "Path to post to."}),
    ("--shape", {"default": "64", "help": "Request body: random rows of this shape, such as 28,28."}),
    ("--rows", {"type": int, "default": 1, "help": "Random rows per request, with --shape."}),
    (
        "--range",
        {
            "default": "0.0,1.0",
            "help": "Range of the numbers of --shape: 0,255 for integers, 0.0,1.0 for floats.",
        },
    ),
    ("--data", {"default": "", "help": "Request body: the content of this file."}),
    ("--lines", {"default": "", "help": "Request bodies: the lines of this file in turn."}),
    ("--expected", {"default": "", "help": "Expected response to --data; to --lines, one per line."}),
    ("--content-type", {"default": "application/json", "help": "Content-Type of requests."}),
    ("--seed", {"type": int, "default": 1, "help": "Seed for arrivals and random rows."}),
    (
        "--think-ms",
        {
            "type": float,
            "default": 0.0,
            "help": "Closed loop: milliseconds that a user pauses after each response.",
        },
    ),
    ("--rate", {"type": float, "default": None, "help": "Open loop: average requests per second."}),
    (
        "--arrivals",
        {"default": "poisson", "help": f"Open loop: arrival process, one of {', '.join(ARRIVALS)}."},
    ),
    ("--seconds", {"type": float, "default": 10.0, "help": "Open loop: seconds to measure."}),
    (
        "--warmup-seconds",
        {"type": float, "default": 1.0, "help": "Open loop: seconds of load before the measurement."},
    ),
    (
        "--generators",
        {"type": int, "default": 1, "help": "Open loop: load generator processes per locust process."},
    ),
    ("--max-connections", {"type": int, "default": 1024, "help": "Open loop: maximum connections."}),
)


VARIABLES = {name: f"UNCORK_{name.removeprefix('--').replace('-', '_').upper()}" for name, _ in _OPTIONS}
"""The environment variable of each option."""


def add_options(parser: ArgumentParser) -> None:
    """Declare the options; each may come from the environment, such as UNCORK_PATH."""
    group = parser.add_argument_group("uncork", "Request bodies and traffic.")
    for name, settings in _OPTIONS:
        group.add_argument(name, env_var=VARIABLES[name], **settings)


def is_open(options: Namespace) -> bool:
    return options.rate is not None or options.arrivals.startswith(REPLAY)


def payload_of(options: Namespace) -> Payload:
    """Return the bodies to send.

    Raises:
        ValueError: if the options contradict each other, or a file cannot be read.
    """
    if options.data and options.lines:
        raise ValueError("--data and --lines cannot be combined")
    if options.expected and not (options.data or options.lines):
        raise ValueError("--expected requires --data or --lines")
    if not (options.data or options.lines):
        return Payload(bodies=_random(options).bodies(seed=options.seed))
    expected = Path(options.expected) if options.expected else None
    path = Path(options.lines or options.data)
    return payload_of_files(path, expected, lines=bool(options.lines))


def _random(options: Namespace) -> RandomRows:
    if options.rows < 1:
        raise ValueError(f"--rows must be at least 1, got {options.rows}")
    return RandomRows(shape=parse_shape(options.shape), rows=options.rows, numbers=parse_range(options.range))


def plan_of(options: Namespace, *, host: str | None, locusts: int = 1) -> Plan:
    """Return the plan that `locusts` processes share.

    Raises:
        ValueError: if a value is missing or out of range.
    """
    try:
        return Plan(
            url=(host or "").rstrip("/") + options.path,
            payload=payload_of(options),
            content_type=options.content_type,
            arrivals=options.arrivals,
            rate=options.rate,
            seconds=options.seconds,
            warmup_s=options.warmup_seconds,
            seed=options.seed,
            processes=options.generators * locusts,
            max_connections=options.max_connections,
        )
    except OSError as error:
        raise ValueError(f"--arrivals: {error}") from None


def report(*, status: int, latency_ms: float, wrong: bool) -> tuple[float | None, str]:
    """Return the response time of a sample, None without a response, and the failure, "" if it succeeded."""
    if status in (LOST, UNANSWERED):
        return None, "connection lost" if status == LOST else "no response"
    if wrong:
        return latency_ms, "wrong response"
    return latency_ms, "" if status // 100 == 2 else f"status {status}"
