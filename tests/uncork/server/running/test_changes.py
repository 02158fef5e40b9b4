"""What differs between two sets of options of `uncork serve`, and what can be read again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.markdown_pages import DOCS
from tests.uncork.config.asking import options_of
from uncork.config.changes import Change, Effect, names_of, needing
from uncork.config.errors import WrongUsage
from uncork.config.names import settings_of
from uncork.server.options import ServeOptions
from uncork.server.running.changes import (
    EFFECTS,
    WITH_NEW_WORKERS,
    changes_between,
    changes_of_proxy,
    changes_of_server,
    changes_of_services,
)
from uncork.server.services import services_of
from uncork_workers.wire.overrides import ARGUMENTS

AT_ONCE, NEW_WORKERS, RESTART = Effect


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "uncork.toml"
    file.touch()
    return file


def changes(file: Path, before: str, after: str, *flags: str, **environment: str) -> list[Change]:
    file.write_text(before)
    options = options_of("serve", "--config", file, *flags, environment=environment)
    file.write_text(after)
    return changes_between(options, options.reread())


def test_effects_are_those_of_settings() -> None:
    assert EFFECTS.keys() < settings_of(ServeOptions).keys()
    assert set(WITH_NEW_WORKERS) < set(ARGUMENTS)


def test_the_reference_lists_what_needs_new_workers() -> None:
    page = (DOCS / "reference/configuration.md").read_text()
    [row] = re.findall(r"^\| with new workers \|(.*)$", page, re.MULTILINE)
    settings = {name for name, effect in EFFECTS.items() if effect is NEW_WORKERS}
    assert set(re.findall(r"`(\w+)`", row)) == settings | set(WITH_NEW_WORKERS)


def test_what_did_not_change_is_no_change(file: Path) -> None:
    text = "workers = 2\n[api.predict]\npolicy = 'aimd'\nallowed_batch_sizes = [1, 2]"
    assert changes(file, text, text) == []


def test_values_are_those_of_the_file_and_of_the_defaults(file: Path) -> None:
    found = changes(
        file,
        "workers = 2\nmb-max-latency = 100\nfair_by = 'X-A'",
        "workers = '2-4'\nport = 3001\naccess_log = true\nwarmup_seconds = 2.5\nlog_level = 'debug'",
    )
    assert sorted(found, key=lambda change: change.name) == [
        Change("access_log", "false", "true", AT_ONCE),
        Change("fair_by", "X-A", "(first come, first served)", AT_ONCE),
        Change("log_level", "info", "debug", AT_ONCE),
        Change("mb_max_latency", "100", "(set per API, else 300)", AT_ONCE),
        Change("port", "3000", "3001", RESTART),
        Change("warmup_seconds", "10", "2.5", NEW_WORKERS),
        Change("workers", "2", "2-4", AT_ONCE),
    ]
    assert names_of(needing(RESTART, found)) == "port"


def test_flags_and_variables_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the start, whatever the environment is now."""
    file.write_text("workers = 2\nmax-queue-rows = 5\npolicy = 'aimd'")
    environment = {"UNCORK_MAX_QUEUE_ROWS": "7"}
    options = options_of("serve", "--config", file, "--workers", "3", environment=environment)
    monkeypatch.setenv("UNCORK_POLICY", "none")
    file.write_text("workers = 4\nmax-queue-rows = 6\npolicy = 'cork'")

    after = options.reread()
    assert (after.workers, after.max_queue_rows, after.policy) == ("3", 7, "cork")
    assert names_of(changes_between(options, after)) == "policy"
    assert names_of(changes_between(after, after.reread())) == ""


def test_settings_of_single_apis_are_named_like_their_keys(file: Path) -> None:
    found = changes(
        file,
        "[api.predict]\npolicy = 'aimd'\nmb_max_latency = 100\ntimeout = 5",
        "[api.predict]\npolicy = 'cork'\nmb_max_latency = 100\n[api.other]\nallowed_batch_sizes = [1, 2]",
    )
    assert found == [
        Change("api.predict.policy", "aimd", "cork", AT_ONCE),
        Change("api.predict.timeout", "5", "(set by the code)", AT_ONCE),
        Change("api.other.allowed_batch_sizes", "(set by the code)", "1, 2", NEW_WORKERS),
    ]


def test_what_another_source_overrides_does_not_change(file: Path) -> None:
    """The command line for all APIs, a variable for one."""
    before = "[api.predict]\nmb_max_latency = 100\npolicy = 'aimd'\ntimeout = 5"
    after = "[api.predict]\nmb_max_latency = 200\npolicy = 'cork'\ntimeout = 6"
    found = changes(file, before, after, "--mb-max-latency", "50", UNCORK_API_PREDICT_POLICY="none")
    assert names_of(found) == "api.predict.timeout"


def test_a_setting_for_all_apis_shows_where_that_of_one_ends(file: Path) -> None:
    found = changes(file, "policy = 'aimd'\n[api.predict]\npolicy = 'none'", "policy = 'aimd'")
    assert found == [Change("api.predict.policy", "none", "aimd", AT_ONCE)]


def test_files_of_keys_differ_without_being_shown(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-the-tests")
    options = options_of("serve", "--api-key-file", keys)
    other_place = options_of("serve", "--api-key-file", tmp_path / "other")

    assert changes_between(options, options, renewed=["api_key_file"]) == [
        Change("api_key_file", str(keys), f"{keys} (other content)", AT_ONCE)
    ]
    assert changes_between(options, other_place, renewed=["api_key_file"]) == [
        Change("api_key_file", str(keys), str(tmp_path / "other"), AT_ONCE)
    ]


def test_variables_of_workers_differ_without_being_shown(file: Path) -> None:
    text = "environment = {}".format
    [first] = changes(file, "", text('["TOKEN=one", "B=2"]'))
    assert first == Change("environment", "(the server's variables)", "TOKEN=***, B=***", NEW_WORKERS)
    [other] = changes(file, text('["TOKEN=one"]'), text('{ TOKEN = "two" }'))
    assert other == Change("environment", "TOKEN=***", "TOKEN=*** (other values)", NEW_WORKERS)


SEVERAL = """
max_queue_rows = 5
workers = 2
[services.digits]
target = "a.py:Digits"
[services.wine]
target = "b.py:Wine"
workers = 1
[services.wine.api.predict]
timeout = 5
"""


def changes_of_several(file: Path, before: str, after: str) -> tuple[list[Change], dict[str, list[Change]]]:
    file.write_text(before)
    options = options_of("serve", "--config", file)
    file.write_text(after)
    new = options.reread()
    return changes_of_server(options, new), changes_of_services(
        services_of(options), services_of(new), renewed={}
    )


def test_the_changes_of_several_services_are_those_of_each(file: Path) -> None:
    """What stands at the top of the file changes those that have nothing else."""
    after = SEVERAL.replace("rows = 5", "rows = 6").replace("workers = 2", "workers = 3")
    after = after.replace("timeout = 5", "timeout = 6\ncost = 'bytes'")
    of_server, of_services = changes_of_several(file, SEVERAL, after)
    assert of_server == [Change("max_queue_rows", "5", "6", AT_ONCE)]
    assert of_services == {
        "digits": [Change("services.digits.workers", "2", "3", AT_ONCE)],
        "wine": [
            Change("services.wine.api.predict.timeout", "5", "6", AT_ONCE),
            Change("services.wine.api.predict.cost", "(set by the code)", "bytes", NEW_WORKERS),
        ],
    }


def test_services_come_and_go(file: Path) -> None:
    """In the order of the file, then those that it lacks."""
    after = SEVERAL.replace("services.digits", "services.numbers")
    of_server, of_services = changes_of_several(file, SEVERAL, after)
    assert of_server == []
    assert of_services == {
        "numbers": [Change("services.numbers", "(not served)", "a.py:Digits", NEW_WORKERS)],
        "wine": [],
        "digits": [Change("services.digits", "a.py:Digits", "(not served)", AT_ONCE)],
    }


def test_settings_of_apis_belong_to_the_only_service_with_a_name(file: Path) -> None:
    """Each change is listed once."""
    before = "[services.a]\ntarget = 'a.py:A'\n[api.predict]\ntimeout = 5"
    of_server, of_services = changes_of_several(file, before, before.replace("5", "6"))
    assert of_server == []
    assert of_services == {"a": [Change("services.a.api.predict.timeout", "5", "6", AT_ONCE)]}


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("workers = 2", "workers = 0", "workers"),
        ("workers = 0", "workers = 2", "workers"),
        ("on = 'h:1'\ntarget = 'a.py:A'", "on = 'h:1'\ntarget = 'b.py:B'", "target"),
    ],
)
def test_some_values_need_a_restart(before: str, after: str, name: str, file: Path) -> None:
    [change] = changes(file, before, after)
    assert (change.name, change.effect) == (name, RESTART)


def test_a_proxy_has_no_workers_to_replace(file: Path) -> None:
    file.write_text("log_format = 'text'")
    options = options_of("proxy", "--config", file)
    file.write_text("log_format = 'json'")
    assert changes_of_proxy(options, options.reread(), renewed=[]) == [
        Change("log_format", "text", "json", AT_ONCE)
    ]


def test_a_wrong_file_is_refused_in_the_words_of_the_start(file: Path) -> None:
    options = options_of("serve", "--config", file)
    file.write_text("workrs = 2")
    with pytest.raises(WrongUsage, match=f"^{file}: workrs is not a setting of uncork serve; did you mean"):
        options.reread()
    file.unlink()
    with pytest.raises(WrongUsage, match="No such file"):
        options.reread()
