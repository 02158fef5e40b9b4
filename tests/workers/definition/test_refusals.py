"""Messages to authors of services that are defined wrongly: the cases are in ``refusals.txt``.

Each is an expression with the names of this module, as an author may write it, and what it raises.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pydantic
import pytest

from tests.expected import check_messages
from tests.workers.definition.outputs.test_host import Exported, JaxArray, Tensor
from tests.workers.definition.test_service import method
from uncork_workers.definition import adapters
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.outputs.encoding import encode
from uncork_workers.definition.outputs.host import on_host
from uncork_workers.definition.outputs.media_types import Csv, Output
from uncork_workers.definition.outputs.responses import Rejected, WrongResult
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.definition.service import api as decorate
from uncork_workers.process.padding import pad
from uncork_workers.process.recorded_metrics import RecordedMetrics
from uncork_workers.wire.schema import CSV, NPY
from uncork_workers.wire.values import DefinitionError


def predict(self: Service, rows: Any) -> Any:
    return rows


async def fetch(self: Service, rows: Any) -> Any:
    return rows


def generator(self: Service, rows: Any) -> Iterator[Any]:
    yield rows


async def stream(self: Service, rows: Any) -> AsyncIterator[Any]:
    yield rows


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


class Table:
    """Like a table of Polars or Arrow."""

    def to_pandas(self) -> None: ...


class Sparse:
    """Like a matrix of SciPy."""

    def toarray(self) -> None: ...


class Awaited:
    """Like a coroutine, but without Python's warning that it was never awaited."""

    def __await__(self) -> None: ...


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def wrong(**attributes: Any) -> Tensor:
    tensor = Tensor([1, 2])
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


class Far(Exported):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the array is on a device")


class Traced(JaxArray):
    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        raise TypeError("it is traced")


class Float8(Tensor):
    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        raise TypeError("Got unsupported ScalarType Float8_e4m3fn")


def api(handler: Any = None, **arguments: Any) -> Any:
    """Decorate a handler, by default a new one of JSON."""
    return decorate(**{"input": Json(), **arguments})(handler or method("predict"))


def metrics() -> RecordedMetrics:
    made = RecordedMetrics()
    made.observe("seen", 1)
    made.count("tokens", 1, {})
    return made


def service(**members: Any) -> None:
    describe_service(type("Odd", (Service,), members))


def described(made: Any) -> None:
    service(**{made.__name__: made})


ECHO = api(method("echo"))
STAGE = method("predict")
CLASSES = {"interactive": 100, "bulk": 10_000}
OF_RESULTS = {
    "CSV": CSV,
    "NPY": NPY,
    "Csv": Csv,
    "Rejected": Rejected,
    "encode": encode,
    "on_host": on_host,
    "pad": pad,
    "pd": pd,
}
NAMES = {**globals(), **vars(adapters), **OF_RESULTS}


def said(expression: str) -> str:
    """Return the message about a wrong expression, or about a service with the API that it makes."""
    with pytest.raises((DefinitionError, WrongResult, TypeError, ValueError)) as caught:
        described(eval(expression, NAMES))
    return re.sub(r" at 0x\w+", "", f"{caught.type.__name__}: {' '.join(str(caught.value).split())}")


def test_what_is_refused() -> None:
    check_messages(Path(__file__).with_name("refusals.txt"), said)
