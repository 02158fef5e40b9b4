"""The rules of one API are checked on construction; errors name the settings."""

import math
import pickle
from typing import Any

import pytest

from uncork_dispatcher.rules import ApiRules, SettingError

NUMBERS = (
    "goal_s",
    "max_batch_rows",
    "max_batch_bytes",
    "timeout_s",
    "max_queue_rows",
    "max_queue_requests",
    "max_queue_bytes",
)


@pytest.mark.parametrize(("field", "least"), [*((name, 1) for name in NUMBERS), ("max_hold_s", 0)])
def test_numbers_have_a_least_value(field: str, least: int) -> None:
    """The compiled core refuses the type where it expects an integer and gets NaN."""
    accepts = "positive" if least else "0 or more"
    for value in (least - 1, -1, math.nan):
        wrong: dict[str, Any] = {field: value}
        with pytest.raises(
            (ValueError, TypeError),
            match=rf"API 'digits': {field} must be {accepts}, got {value}|int object expected",
        ):
            ApiRules(name="digits", **wrong)
    right: dict[str, Any] = {field: least}
    assert getattr(ApiRules(name="digits", **right), field) == least


@pytest.mark.parametrize("field", ["allowed_lengths", "allowed_batch_sizes"])
@pytest.mark.parametrize("values", [(0, 4), (-1,), (8, 4), (4, 4)])
def test_allowed_values_are_positive_and_rise(field: str, values: tuple[int, ...]) -> None:
    wrong: dict[str, Any] = {field: values}
    with pytest.raises(
        SettingError, match=rf"API 'digits': {field} must be positive and in rising order, got"
    ):
        ApiRules(name="digits", **wrong)
    right: dict[str, Any] = {field: (1, 4)}
    assert getattr(ApiRules(name="digits", **right), field) == (1, 4)


def test_the_policy_is_checked() -> None:
    with pytest.raises(ValueError, match=r"API 'digits': policy: unknown policy 'clever'; available: cork"):
        ApiRules(name="digits", policy="clever")


def test_an_error_may_use_other_names() -> None:
    """Of one setting or several; also after its way from another process."""
    error = pickle.loads(pickle.dumps(SettingError("cert", "key", says=" must be files", of="API 'a': ")))

    assert str(error) == "API 'a': cert and key must be files"
    assert error.under({"key": "--key", "files": "--no"}) == "cert and --key must be files"


@pytest.mark.parametrize(
    ("settings", "shares"), [({}, True), ({"workers": 1}, False), ({"concurrency": 2}, False)]
)
def test_an_api_without_workers_or_slots_of_its_own_shares(settings: dict[str, int], shares: bool) -> None:
    assert ApiRules(name="a", **settings).shares_workers is shares  # type: ignore[arg-type]
