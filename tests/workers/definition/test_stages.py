"""``@api(prepare=, finish=)``: which methods can be stages."""

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api


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
