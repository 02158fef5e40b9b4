"""Logging to terminals and files."""

import io
import logging
import re
import subprocess
import sys

import pytest
from rich.console import Console

from uncork_workers.process.logs import is_watched, log_to_stderr


def console(environment: dict[str, str], *, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, _environ=environment)


def logged(on: Console, message: str = "it is very [bold]hot[/bold] today") -> str:
    root = logging.getLogger()
    level, handlers, root.handlers = root.level, root.handlers, []
    try:
        log_to_stderr("warning", "worker 3", console=on)
        logging.getLogger("uncork.worker").warning("%s", message)
        logging.getLogger("uncork.worker").info("and sunny")
    finally:
        root.handlers = handlers
        root.setLevel(level)
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_a_terminal_has_colours() -> None:
    """The current line is overwritten; messages are not markup."""
    text = logged(console({"TERM": "xterm-256color"}))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)

    assert text.startswith("\r\x1b[2K")
    assert re.search(r"\x1b\[[0-9;]*mWARNING", text)
    assert re.search(r"\d\d:\d\d:\d\d WARNING  worker 3: it is very \[bold\]hot\[/bold\] today\s*$", plain)


def test_a_traceback_has_the_whole_width() -> None:
    long = "x" * 70
    text = logged(console({"TERM": "xterm", "NO_COLOR": "1"}), f"failed\nTraceback:\n  {long}")

    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    assert lines[-3].endswith("worker 3: failed")
    assert lines[-2:] == ["Traceback:", f"  {long}"]


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "unknown"}])
def test_a_terminal_that_can_do_nothing_has_plain_lines(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert logged(console(environment)) == ""
    line = r"[-\d]+ [:\d]+,\d+ WARNING worker 3: it is very \[bold\]hot\[/bold\] today\n"
    assert re.fullmatch(line, capsys.readouterr().err)


def test_who_looks() -> None:
    assert is_watched(console({"TERM": "xterm", "NO_COLOR": "1"}))
    assert not is_watched(console({"TERM": "dumb"}))
    assert not is_watched(console({"TERM": "xterm"}, terminal=False))


@pytest.mark.parametrize(("variables", "loads"), [({}, False), ({"FORCE_COLOR": "1"}, True)])
def test_a_worker_loads_rich_only_for_a_terminal(variables: dict[str, str], *, loads: bool) -> None:
    """It takes a third of a worker's start, and 10 MB."""
    code = (
        "import sys, uncork_workers.process.worker as worker\n"
        "worker.log_to_stderr('info', 'worker 0')\n"
        "print('rich' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=True
    )
    assert ran.stdout == f"{loads}\n"
