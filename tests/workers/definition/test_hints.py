"""Hints on exceptions."""

import asyncio
import logging
import re
import sys
from contextlib import closing
from typing import Any

import pytest

from tests.workers.run_batch import batch_of, run_batch
from uncork_workers.definition import hints
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.hints import adding_hints, hint_on_import
from uncork_workers.definition.outputs.responses import Rejected
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor


class Uses(Service):
    @api(input=Json())
    def predict(self, items: list[Any]) -> list[Any]:
        return [self.model for _ in items]  # type: ignore[attr-defined]


SERVICE = Uses()


class Misnamed(Uses):
    def set_up(self) -> None: ...

    def predictions(self) -> None: ...


class Forgetful(Uses):
    def setup(self) -> None: ...


class Others(Uses):
    def setup(self) -> None:
        self.words, self.labels = 1, 2


class Typo(Uses):
    def setup(self) -> None:
        self.modle = 5


def noted(service: Service, error: BaseException) -> list[str]:
    for _ in range(2):
        with pytest.raises(type(error)), adding_hints(service):
            raise error
    return getattr(error, "__notes__", [])


def test_a_rejection_that_is_raised() -> None:
    """It is a result, not an exception."""
    service = Uses()
    with pytest.raises(TypeError) as caught, adding_hints(service):
        raise Rejected(422, "no such wine")  # type: ignore[misc]
    hint = "hint: return Rejected(...) or Response(...) in the list of results, at the position of its row"
    assert caught.value.__notes__ == [hint]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (
            Uses,
            "self.model is not set; set it in setup(self), which runs once in each worker",
        ),
        (Misnamed, "self.model is not set: set_up() is never called; rename it to setup"),
        (Forgetful, "setup() does not set self.model; self has no attributes"),
        (Others, "setup() does not set self.model; available attributes: self.labels, self.words"),
        (Typo, "self.model is not set; did you mean self.modle?"),
    ],
)
def test_an_attribute_that_nothing_has_set(
    kind: type[Service], hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log shows the hint below the traceback; the response does not."""
    service = kind()
    service.worker_index = 1
    service.setup()

    reply, bodies = run_batch(service, "predict", b"1")

    # Python may have a suggestion of its own.
    assert re.search(rf"has no attribute 'model'.*\nhint: {re.escape(hint)}\n", f"{caplog.text}\n")
    assert reply.statuses == [500]
    assert b"model" not in bodies[0]


def test_a_hint_is_given_once() -> None:
    error = AttributeError("no model", name="model", obj=SERVICE)

    assert len(noted(SERVICE, error)) == 1


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("of something else", name="model", obj=Uses()),
        AttributeError("of nothing"),
        AttributeError("of nobody knows what", obj=SERVICE),
        TypeError("nothing of ours"),
        ValueError("at all"),
    ],
)
def test_nothing_is_said_of_other_errors(error: Exception) -> None:
    """A guess would mislead."""
    assert noted(SERVICE, error) == []


def test_a_package_that_is_missing() -> None:
    error = ModuleNotFoundError("No module named 'no_such.inner'", name="no_such.inner")

    hint = f"install it for the Python that runs the workers: {sys.executable} -m pip install no_such"
    assert hint_on_import(error) == hint
    of_other_name = ModuleNotFoundError("No module named 'sklearn.svm'", name="sklearn.svm")
    assert hint_on_import(of_other_name).endswith("-m pip install scikit-learn")
    assert noted(Uses(), error) == [f"hint: {hint}"]


ANY_API: Any = api
ANY_ARRAY: Any = NdArray


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (
            lambda: ANY_API(print),
            "write @api(input=Json()), or another adapter, above the method; pass all",
        ),
        (lambda: ANY_API(Json()), "write @api(input=Json()), or another adapter"),
        (lambda: ANY_API(), "write @api(input=Json()), or another adapter"),
        (lambda: ANY_API(input=Json(), max_batch_size=5), "did you mean mb_max_batch_size?"),
        (lambda: ANY_API(inputs=Json()), "did you mean input?"),
        (lambda: ANY_API(input=Json(), xyz=5), "write @api(input=Json()), or another adapter"),
        (lambda: ANY_ARRAY("float32", (64,)), "pass its arguments by keyword: NdArray(dtype=..., shape=...)"),
        (lambda: ANY_ARRAY.describe(), ""),
    ],
)
def test_a_call_that_is_written_wrongly(write: Any, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        write()

    found = hint_on_import(caught.value)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


class Blocking(Service):
    @api(input=Json())
    async def never(self, items: list[Any]) -> list[Any]:
        return [1 / item for item in items]

    @api(input=Json())
    async def awaits(self, items: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return items


@pytest.mark.parametrize(
    ("to", "items", "long_s", "times"),
    [("never", [1, 2], -1, 1), ("never", [0], -1, 1), ("never", [1], 1e9, 0), ("awaits", [1, 2], -1, 0)],
)
def test_an_async_handler_that_blocks(
    to: str,
    items: list[int],
    long_s: float,
    times: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning after a long call; the test sets the limit to zero or infinity."""
    monkeypatch.setattr(hints, "_LONG_S", long_s)
    with closing(Executor(Blocking())) as executor:
        for item in items:
            reply, _ = executor.run(batch_of(to, b"%d" % item), [b"%d" % item])
            assert reply.statuses == [200 if item else 500]

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == times
    assert all("API never: the async handler ran for" in warning.getMessage() for warning in warnings)
