"""Errors in the values of settings."""

import pickle

from uncork_dispatcher import SettingError


def test_the_settings_may_have_other_names() -> None:
    error = SettingError("goal_s", says=" must be positive, got 0", of="API 'a': ")

    assert str(error) == "API 'a': goal_s must be positive, got 0"
    assert error.under({"goal_s": "--goal-ms", "0": "--zero"}) == "--goal-ms must be positive, got 0"
    assert error.under({}) == "goal_s must be positive, got 0"


def test_several_settings_are_at_fault() -> None:
    error = SettingError("cert", "key", says=" must be files, got key")

    assert error.under({"key": "--key"}) == "cert and --key must be files, got key"


def test_it_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(SettingError("cert", says=" must be a file", of="S: ")))

    assert str(error) == "S: cert must be a file"
    assert error.under({"cert": "--cert"}) == "--cert must be a file"
