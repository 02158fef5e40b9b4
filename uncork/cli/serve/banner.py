"""The lines that a server prints when it starts: its service, settings and addresses."""

import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from uncork.server.listeners import Listeners
from uncork.server.options import ServeOptions
from uncork_dispatcher.wording import plural
from uncork_gateway.pages.curl import curl, has_short_example
from uncork_workers.process.logs import LogFormat, is_watched
from uncork_workers.wire.schema import CSV, JSON, NPY, ApiDescription, ServiceDescription

log = logging.getLogger("uncork.gateway")

_NAMES = {JSON: "JSON", CSV: "CSV", NPY: "npy"}


class Line(NamedTuple):
    """A line, and details of it."""

    text: Text
    details: tuple[str, ...] = ()


def print_lines(lines: Iterable[Line], log_format: LogFormat) -> None:
    """Print lines on stdout, or log them if logs are JSON.

    They are not wrapped, so that commands can be copied.
    """
    if log_format == "json":
        for text, details in lines:
            log.info("%s", "   ".join([text.plain.strip(), *(["; ".join(details)] if details else [])]))
        return
    console = Console(highlight=False)
    for text, details in lines:
        if is_watched(console):
            console.print(text, soft_wrap=True)
            for one in details:
                console.print(Text(f"       {one}", "dim"), soft_wrap=True)
        else:
            # One line each, for programs.
            console.print(text, "; ".join(details), sep="   " if details else "", soft_wrap=True)
    console.file.flush()


def print_ready(after_s: float, log_format: LogFormat) -> None:
    """Print that the server is ready; log it if logs are JSON."""
    if log_format == "json":
        log.info("ready after %.1f s", after_s)
        return
    print(f"ready after {after_s:.1f} s; press Ctrl-C to stop", flush=True)


class Shown(NamedTuple):
    """A service with its options; without a name, it is the only one."""

    name: str
    service: ServiceDescription
    options: ServeOptions


def of_services(services: Sequence[Shown], *, listeners: Listeners) -> list[Line]:
    """Return the lines of ``uncork serve``."""
    lines: list[Line] = []
    if len(services) == 1:
        lines.append(headline(_described(services[0])))
    else:
        lines.append(headline(f"{len(services)} services"))
    for one in services:
        if len(services) > 1:
            lines.append(note(f"{one.name}: {_described(one)}"))
        lines += [
            address("POST", listeners.url + path, _timing(api), _media_types(api))
            for api in one.service.apis
            for path in api.routes
        ]
    lines += [*grpc(listeners), *pages(listeners), address("GET ", f"{listeners.url}/docs")]
    apis = [api for one in services for api in one.service.apis]
    short = next((api for api in apis if has_short_example(api)), None)
    if short is not None:
        lines.append(note(curl(short, listeners.url, wants_key=listeners.credentials.keys is not None)))
    return lines


def _described(shown: Shown) -> str:
    gpus = shown.options.gpu_names
    on = f", on GPU{'' if len(gpus) == 1 else 's'} {', '.join(gpus)}" if gpus else ""
    return f"{shown.service.name} with {shown.options.worker_count}{on}"


def headline(what: str) -> Line:
    return Line(Text.assemble((f"uncork {version('uncork')}: ", "bold"), what))


def note(what: str) -> Line:
    return Line(Text(f"  {what}"))


def grpc(listeners: Listeners, *details: str) -> list[Line]:
    """Return the address for gRPC clients, if there is one."""
    return [address("gRPC", listeners.grpc_target, *details)] if listeners.grpc is not None else []


def pages(listeners: Listeners) -> list[Line]:
    """Return the addresses of the pages for operators, after the Unix socket, if there is one."""
    unix = [] if listeners.unix is None else [address("UNIX", listeners.unix_path)]
    return unix + [
        address("GET ", f"{listeners.admin_url}/{page}")
        for page in ("readyz", "metrics", "status", "dashboard")
    ]


def address(method: str, url: str, *details: str) -> Line:
    return Line(Text.assemble(f"  {method} ", (url, "cyan")), details)


def _timing(api: ApiDescription) -> str:
    """Describe when an API answers."""
    settings = api.settings
    if api.streams:
        return f"streams, one request at a time, for at most {settings.timeout:g} s"
    most = plural(settings.limit_rows, "cost unit" if settings.cost else "row")
    return f"goal {settings.mb_max_latency:g} ms, policy {settings.policy}, at most {most} per batch"


def _media_types(api: ApiDescription) -> str:
    if api.streams or api.answers_each:
        return f"accepts {_input(api.input)}"
    return f"accepts {_input(api.input)}, returns {', '.join(_NAMES.get(one, one) for one in api.offers)}"


def _input(described: dict[str, Any]) -> str:
    kind = str(described["kind"])
    match described:
        case {"kind": "ndarray", "dtype": dtype, "shape": list(shape)}:
            return f"{kind} {dtype} ({', '.join('any' if one is None else str(one) for one in shape)})"
        case {"kind": "raw", "accepts": [media_type, *_]}:
            return str(media_type)
        case _:
            return kind
