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


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_positive(field: str, value: float) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=rf"API 'digits': {field} must be positive, got {value}"):
        ApiRules(name="digits", **wrong)


@pytest.mark.parametrize("field", NUMBERS)
def test_limits_are_numbers(field: str) -> None:
    """The compiled core refuses the type where it expects an integer."""
    wrong: dict[str, Any] = {field: math.nan}
    with pytest.raises(
        (ValueError, TypeError), match=rf"{field} must be positive, got nan|int object expected"
    ):
        ApiRules(name="digits", **wrong)


@pytest.mark.parametrize("field", NUMBERS)
def test_one_is_enough_of_everything(field: str) -> None:
    least: dict[str, Any] = {field: 1}

    assert getattr(ApiRules(name="a", **least), field) == 1


@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_hold_is_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match=rf"API 'digits': max_hold_s must be 0 or more, got {value}"):
        ApiRules(name="digits", max_hold_s=value)

    assert ApiRules(name="digits", max_hold_s=0).max_hold_s == 0


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


def test_the_defaults_are_those_of_the_documents() -> None:
    """300 ms, 1000 rows, one minute, run again when lost."""
    rules = ApiRules(name="a")

    assert (rules.goal_s, rules.max_batch_rows, rules.policy) == (0.3, 1000, "cork")
    assert (rules.timeout_s, rules.idempotent) == (60.0, True)


def test_an_error_may_use_other_names() -> None:
    error = SettingError("goal_s", says=" must be positive, got 0", of="API 'a': ")

    assert str(error) == "API 'a': goal_s must be positive, got 0"
    assert error.under({"goal_s": "--goal-ms", "0": "--zero"}) == "--goal-ms must be positive, got 0"
    assert error.under({}) == "goal_s must be positive, got 0"


def test_an_error_about_several_settings() -> None:
    error = SettingError("cert", "key", says=" must be files, got key")

    assert error.under({"key": "--key"}) == "cert and --key must be files, got key"


def test_an_error_is_sent_between_processes() -> None:
    error = pickle.loads(pickle.dumps(SettingError("cert", says=" must be a file", of="S: ")))

    assert str(error) == "S: cert must be a file"
    assert error.under({"cert": "--cert"}) == "--cert must be a file"
