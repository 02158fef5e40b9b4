"""Messages to authors of services that are defined wrongly: the cases are in ``refusals.txt``.

Each is an expression with the names of this module, as an author may write it, and the message. A message
that ends in ``…`` has been cut before what a library says.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from tests.expected import check_texts
from uncork_workers.definition import adapters
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.outputs.media_types import Csv, Output
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.definition.service import api as decorate
from uncork_workers.wire.values import DefinitionError

CASES = Path(__file__).with_name("refusals.txt")


def predict(self: Service, rows: Any) -> Any:
    return rows


async def fetch(self: Service, rows: Any) -> Any:
    return rows


def generator(self: Service, rows: Any) -> Iterator[Any]:
    yield rows


async def stream(self: Service, rows: Any) -> AsyncIterator[Any]:
    yield rows


def method(name: str) -> Any:
    """Return a new method, as @api marks each that it decorates."""

    def plain(self: Service, rows: Any) -> Any:
        return rows

    plain.__name__ = name
    return plain


def without_self(rows: Any) -> None: ...
def without_rows(self: Service) -> None: ...
def with_more(self: Service, rows: Any, more: Any) -> None: ...
def with_keyword(self: Service, rows: Any, *, more: Any) -> None: ...
def selfless() -> None: ...
def wanting(self: Service, path: str, *, size: int, mode: str = "r") -> None: ...
async def asynchronous(self: Service) -> None: ...


def generating(self: Service) -> Iterator[None]:
    yield


class Opaque:
    """Nothing that JSON could be."""


class Calling(pydantic.BaseModel):
    call: Callable[[], int]


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    language: str


class NoMediaType(Output):
    pass


def api(handler: Any = None, **arguments: Any) -> Any:
    """Decorate a handler, by default a new one of JSON."""
    return decorate(**{"input": Json(), **arguments})(handler or method("predict"))


def service(**members: Any) -> None:
    describe_service(type("Odd", (Service,), members))


def described(made: Any) -> None:
    service(**{made.__name__: made})


ECHO = api(method("echo"))
STAGE = method("predict")
CLASSES = {"interactive": 100, "bulk": 10_000}
NAMES = {**globals(), **vars(adapters), "Csv": Csv}


def said(expression: str) -> str:
    """Return the message about a wrong expression, or about a service with the API that it makes."""
    with pytest.raises((DefinitionError, TypeError)) as caught:
        described(eval(expression, NAMES))
    return re.sub(r" at 0x\w+", "", " ".join(str(caught.value).split()))


def now() -> Iterator[str]:
    """Yield each case with what is said now."""
    for case in CASES.read_text().rstrip().split("\n\n"):
        expression, _, known = case.partition("\n> ")
        told = said(expression)
        goes_on = known.endswith("…") and told.startswith(known[:-1])
        yield f"{expression}\n> {known if goes_on else told}"


def test_what_is_refused_is_told() -> None:
    check_texts(CASES, "\n\n".join(now()) + "\n")
