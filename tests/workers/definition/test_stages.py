"""``@api(prepare=, finish=)``: which methods can be stages."""

from typing import Any

import pytest

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.values import DefinitionError


def plain(self: object, rows: Any) -> Any:
    return rows


async def is_async(self: object, rows: Any) -> Any:
    return rows


def generator(self: object, rows: Any) -> Any:
    yield rows


def without_rows(self: object) -> Any:
    return self


@pytest.mark.parametrize("argument", ["prepare", "finish"])
@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("plain", "must be a method defined above the API, got 'plain'"),
        (staticmethod(plain), "must be a method defined above the API, got <staticmethod"),
        (is_async, "must be a plain method, without async and yield; it has a thread of its own"),
        (generator, "must be a plain method, without async and yield"),
        (
            without_rows,
            r"is called with self and the whole batch; write def without_rows\(self, batch\), not ",
        ),
    ],
)
def test_what_is_no_method_of_a_batch_is_refused(argument: str, stage: Any, says: str) -> None:
    stages: dict[str, Any] = {argument: stage}
    with pytest.raises(DefinitionError, match=f"API 'predict': {argument} {says}"):
        api(input=Json(), **stages)(predict)


def predict(self: object, rows: Any) -> Any:
    return rows


class Steps(Service):
    def double(self, rows: list[int]) -> list[int]:
        return [2 * row for row in rows]

    def negate(self, rows: list[int]) -> list[int]:
        return [-row for row in rows]

    @api(input=Json(), prepare=double, finish=negate)
    def predict(self, rows: list[int]) -> list[int]:
        return [row + 1 for row in rows]

    @api(input=Json(), finish=negate)
    def last(self, rows: list[int]) -> list[int]:
        return rows


class Overriding(Steps):
    def double(self, rows: list[int]) -> list[int]:
        return [10 * row for row in rows]


def test_stages_run_in_their_order_and_subclasses_override_them() -> None:
    assert run_batch(Steps(), "predict", b"1", b"2")[1] == [b"-3", b"-5"]
    assert run_batch(Steps(), "last", b"1")[1] == [b"-1"]
    assert run_batch(Overriding(), "predict", b"1")[1] == [b"-11"]
