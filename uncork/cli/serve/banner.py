"""What a server says of itself when it starts: what it serves, under which settings, and where to look."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from uncork.server.listeners import Listeners
from uncork_dispatcher.plural import plural
from uncork_gateway.pages.curl import curl, has_short_example
from uncork_workers.process.logs import is_watched
from uncork_workers.wire.schema import CSV, JSON, NPY, ApiDescription, ServiceDescription

_NAMES = {JSON: "JSON", CSV: "CSV", NPY: "npy"}


class Line(NamedTuple):
    """A line, and what is told of what stands there."""

    text: Text
    told: tuple[str, ...] = ()


def print_lines(lines: Iterable[Line]) -> None:
    """Print on stdout, and break nothing into lines: what is there may be copied."""
    console = Console(highlight=False)
    with _terminal_may_go():
        for text, told in lines:
            if is_watched(console):
                console.print(text, soft_wrap=True)
                for one in told:
                    console.print(Text(f"       {one}", "dim"), soft_wrap=True)
            else:
                # What belongs together is one line, for programs to read.
                console.print(text, "; ".join(told), sep="   " if told else "", soft_wrap=True)
        console.file.flush()


def tell_ready(after_s: float) -> None:
    """Print that requests are answered from now on."""
    with _terminal_may_go():
        print(f"ready after {after_s:.1f} s; Ctrl-C stops", flush=True)


@contextmanager
def _terminal_may_go() -> Iterator[None]:
    """A terminal that is gone is no fault: SIGHUP ends the server in a moment."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def of_service(
    service: ServiceDescription, *, workers: int, gpus: Sequence[str], listeners: Listeners
) -> list[Line]:
    """For a service of ours."""
    on = f", on GPU{'' if len(gpus) == 1 else 's'} {', '.join(gpus)}" if gpus else ""
    lines = [headline(f"{service.name} with {plural(workers, 'worker')}{on}")]
    lines += [address("POST", listeners.url + api.route, _manner(api), _forms(api)) for api in service.apis]
    lines += [*pages(listeners), address("GET ", f"{listeners.url}/docs")]
    short = next((api for api in service.apis if has_short_example(api)), None)
    if short is not None:
        lines.append(note(curl(short, listeners.url, wants_key=listeners.keys is not None)))
    return lines


def headline(what: str) -> Line:
    """The first line."""
    return Line(Text.assemble((f"uncork {version('uncork')}: ", "bold"), what))


def note(what: str) -> Line:
    """Something that is neither here nor there."""
    return Line(Text(f"  {what}"))


def pages(listeners: Listeners) -> list[Line]:
    """Where operators look."""
    return [
        address("GET ", f"{listeners.admin_url}/{page}")
        for page in ("readyz", "metrics", "status", "dashboard")
    ]


def address(method: str, url: str, *told: str) -> Line:
    """Where something is to be found."""
    return Line(Text.assemble(f"  {method} ", (url, "cyan")), told)


def _manner(api: ApiDescription) -> str:
    """How an api answers."""
    settings = api.settings
    if api.streams:
        return f"streams, one request at a time, for at most {settings.timeout:g} s"
    most = f"{settings.limit_rows} in cost" if settings.cost else plural(settings.limit_rows, "row")
    return f"goal {settings.mb_max_latency:g} ms, policy {settings.policy}, at most {most} a batch"


def _forms(api: ApiDescription) -> str:
    """What an api takes in, and what it answers in."""
    if api.streams or api.answers_each:
        return f"takes {_taken(api.input)}"
    return f"takes {_taken(api.input)}, answers {', '.join(_NAMES.get(one, one) for one in api.offers)}"


def _taken(described: dict[str, Any]) -> str:
    kind = str(described["kind"])
    match described:
        case {"kind": "ndarray", "dtype": dtype, "shape": list(shape)}:
            return f"{kind} {dtype} ({', '.join('any' if one is None else str(one) for one in shape)})"
        case {"kind": "raw", "accepts": [media_type, *_]}:
            return str(media_type)
        case _:
            return kind
