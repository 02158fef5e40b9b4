"""What the options of ``uncork loadtest`` describe, checked: payload, plan and their contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncork.cli.usage import WrongUsage, in_options
from uncork_dispatcher.simulator.traffic import recorded_times
from uncork_loadtests.traffic.payloads import load_function, read_bodies
from uncork_loadtests.traffic.plan import REPLAY, Payload, Plan
from uncork_loadtests.traffic.random_rows import RandomRows, parse_range, parse_shape
from uncork_loadtests.traffic.tls import Tls

SECONDS = 10.0
"""Measured time when none is given."""

# A plan speaks of its own fields, people of options.
_OPTIONS = {
    "max_connections": "--max-connections",
    "warmup_s": "--warmup-seconds",
    "think_s": "--think-ms",
    "goal_s": "--goal-ms",
    "clients": "--clients",
    "processes": "--processes",
    "seconds": "--seconds",
    "url": "TARGET",
}
_TLS_OPTIONS = {name: f"--{name}" for name in ("ca", "insecure", "cert", "key")}


NOWHERE = "http://service/"
"""The URL of a plan until there is a server."""


def is_url(target: str) -> bool:
    """Whether a target is no service."""
    return "://" in target


def payload_of(
    data: Path | None,
    lines: Path | None,
    rows: int,
    shape: str | None,
    value_range: str | None,
    function: str | None,
    expected: Path | None,
) -> Payload:
    """What to send.

    Raises:
        WrongUsage: if the options do not say, or what they name cannot be had.
    """
    kinds = {"--data": data, "--lines": lines, "--shape": shape, "--function": function}
    chosen = [name for name, value in kinds.items() if value is not None]
    if len(chosen) != 1:
        raise WrongUsage(
            f"say what to send with one of {', '.join(kinds)}; got {', '.join(chosen) or 'none'}"
        )
    try:
        if function is not None:
            load_function(function)
            return Payload(function=function)
        if shape is not None:
            numbers = None if value_range is None else parse_range(value_range)
            return Payload(random=RandomRows(shape=parse_shape(shape), rows=rows, numbers=numbers))
        bodies = read_bodies(data or lines or Path(), lines=lines is not None)
        answers = read_bodies(expected, lines=lines is not None) if expected is not None else None
        return Payload(bodies=bodies, expected=answers)
    except OSError as error:
        raise WrongUsage(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def header_field(text: str) -> tuple[str, str]:
    """Name and value of a header field.

    Raises:
        WrongUsage: if it is none.
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable():
        raise WrongUsage(f"--header takes NAME:VALUE, got {text!r}")
    return name.strip(), value.strip()


def tls_of(ca: Path | None, insecure: bool, cert: Path | None, key: Path | None) -> Tls:
    """How to speak TLS with the server, once the files have been seen to work.

    Raises:
        WrongUsage: if not, or the options contradict each other.
    """
    files = {"ca": ca, "cert": cert, "key": key}
    tls = Tls(insecure=insecure, **{name: str(file) for name, file in files.items() if file is not None})
    try:
        if tls != Tls():  # the system's certificates take time to load, also for http
            tls.context()
    except ValueError as error:
        raise in_options(error, _TLS_OPTIONS) from None
    return tls


def seconds_of(asked: float | None, *, arrivals: str, recorded: bool, otherwise: float = SECONDS) -> float:
    """How long to measure; a recording that comes as it was recorded lasts as long as it does.

    Raises:
        WrongUsage: if it cannot be read.
    """
    if asked is not None or not (recorded and arrivals.startswith(REPLAY)):
        return otherwise if asked is None else asked
    try:
        times = recorded_times(Path(arrivals.removeprefix(REPLAY)))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"--arrivals: {error}") from None
    # The last of them, too, is to come before the end.
    return math.nextafter(times[-1] - times[0], math.inf)


def plan_of(values: dict[str, Any], *, url: str, goal_ms: float | None) -> Plan:
    """The plan of a run.

    Raises:
        WrongUsage: if a value is out of range, in terms of the options.
    """
    if values["rate"] is None and values["clients"] is None and not values["arrivals"].startswith(REPLAY):
        raise WrongUsage(f"give a --rate, or --clients, or recorded --arrivals ({REPLAY}FILE)")
    try:
        return Plan(**values, url=url, goal_s=None if goal_ms is None else goal_ms / 1000)
    except OSError as error:
        raise WrongUsage(f"--arrivals: {error}") from None
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None


def serve_arguments(options: Mapping[str, object]) -> list[str]:
    """The options that have a value, as ``uncork serve`` takes them."""
    return [text for name, value in options.items() if value is not None for text in (name, str(value))]


def refuse_contradictions(given: set[str], *, target: str = "") -> None:
    """See that the options go together, and with the target if it may be a URL.

    Raises:
        WrongUsage: if not.
    """

    def named(*options: str) -> str:
        return ", ".join(f"--{name.replace('_', '-')}" for name in options if name in given)

    if is_url(target) and (wrong := named("path", "workers", "policy", "mb_max_latency")):
        raise WrongUsage(f"{wrong} goes with a service; TARGET is a URL")
    if not target.startswith("https://") and (wrong := named(*_TLS_OPTIONS)):
        raise WrongUsage(f"{wrong} goes with a TARGET that begins with https://; got {target!r}")
    if "clients" in given and (wrong := named("rate", "arrivals", "max_connections")):
        raise WrongUsage(f"--clients makes a closed loop: leave out {wrong}, or --clients")
    if "clients" not in given and "think_ms" in given:
        raise WrongUsage("--think-ms only goes with --clients, which makes a closed loop")
    for name, option in {"rows": "--rows", "value_range": "--range"}.items():
        if name in given and "shape" not in given:
            raise WrongUsage(f"{option} only goes with --shape")
    if "expected" in given and not {"data", "lines"} & given:
        raise WrongUsage("--expected only goes with --data or --lines")
