"""The reason that /readyz gives when no worker is ready."""

import pytest

from uncork_gateway.backends.worker_failures import WorkerFailures, WorkerStartup


class Watched(WorkerFailures):
    """Failures with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(clock=lambda: self.now)


@pytest.fixture
def on() -> Watched:
    """No worker has been reported yet."""
    return Watched()


def test_a_long_setup_is_told(on: Watched) -> None:
    on.setting_up(1)
    on.now += 300
    on.setting_up(0)
    on.now += 12
    assert on.text() == "worker 1 has been in setup for 312 s"


def test_a_long_warm_up_is_told(on: Watched) -> None:
    """With its current stage; a ready worker has none."""
    on.setting_up(0)
    on.now += 5
    on.warming_up(0, "predict", 1)
    on.setting_up(1)
    on.now += 2
    on.warming_up(0, "predict", 32)
    on.now += 3
    assert on.starts() == {
        0: WorkerStartup("warm-up of predict", " with 32 rows", 1007),
        1: WorkerStartup("setup", "", 1005),
    }
    on.ready(1)
    assert on.text() == "worker 0 has been in warm-up of predict with 32 rows for 3 s"
    on.warming_up(0, "predict", 1)
    died = "worker 0 was killed by SIGKILL during warm-up of predict with 1 row"
    assert on.exited(0, "was killed by SIGKILL", failures=1, retry_s=0.1) == died
    assert on.starts() == {}


def test_a_crash_loop_is_told_with_its_next_try(on: Watched) -> None:
    """In the worker's own words, with a countdown."""
    reason = "worker 0 failed in setup: OSError: no weights"
    on.setting_up(0)
    on.failed(0, reason, standby=False)
    assert on.exited(0, "exited with code 1", failures=1, retry_s=0.1) is None
    assert on.text() == reason
    on.failed(0, reason, standby=False)
    assert on.exited(0, "exited with code 1", failures=7, retry_s=10) is None
    assert on.text() == f"{reason} (7 times in a row; retrying in 10 s)"
    on.now += 6
    assert on.text() == f"{reason} (7 times in a row; retrying in 4 s)"
    on.now += 5
    assert on.text() == f"{reason} (7 times in a row; retrying)"
    on.setting_up(0)
    on.now += 3
    assert on.text() == f"{reason} (7 times in a row; retrying); worker 0 has been in setup for 3 s"


@pytest.mark.parametrize(("in_setup", "where"), [(True, " during setup"), (False, "")])
def test_a_worker_that_ends_without_a_word_is_told(on: Watched, in_setup: bool, where: str) -> None:
    if in_setup:
        on.setting_up(3)
    reason = f"worker 3 was killed by SIGSEGV{where}"
    assert on.exited(3, "was killed by SIGSEGV", failures=1, retry_s=0.1) == reason
    assert on.text() == reason
    # Its stage has ended with it.
    assert on.exited(3, "exited with code 0", failures=1, retry_s=0.1) == "worker 3 exited with code 0"


def test_a_ready_worker_ends_all_trouble(on: Watched) -> None:
    """Earlier failures are no reason if there is no worker later."""
    on.setting_up(0)
    on.exited(1, "was killed by SIGKILL", failures=3, retry_s=1)
    on.ready(0)
    on.now += 60
    assert on.text() == "workers are starting"


def test_why_a_new_worker_could_not_take_over_is_told_once(on: Watched) -> None:
    on.failed(2, "new worker 2 failed in load: no module", standby=True)
    assert on.text() == "workers are starting"
    assert on.why_no_standby(1) is None
    assert on.why_no_standby(2) == "new worker 2 failed in load: no module"
    assert on.why_no_standby(2) is None


def test_each_worker_that_is_missing_is_told(on: Watched) -> None:
    """Until it is ready again, whatever happens to others."""
    on.exited(0, "exited with code 3", failures=0, retry_s=0)
    on.exited(1, "was killed by SIGKILL", failures=2, retry_s=5)
    on.ready(0)
    on.now += 1
    assert on.missing() == {1: "worker 1 was killed by SIGKILL (2 times in a row; retrying in 4 s)"}
    on.ready(1)
    assert on.missing() == {}


def test_workers_that_cannot_be_started_come_first(on: Watched) -> None:
    on.exited(0, "was killed by SIGKILL", failures=1, retry_s=0.1)
    on.waiting([0, 2], "no room")
    assert on.text() == "2 workers waiting to be started: no room"
    assert on.missing() == {
        0: "worker 0 is waiting to be started: no room",
        2: "worker 2 is waiting to be started: no room",
    }
    on.waiting([], "")
    assert on.text() == "worker 0 was killed by SIGKILL"
    assert on.missing() == {0: "worker 0 was killed by SIGKILL"}


def test_a_worker_without_a_supervisor_that_has_gone_is_not_missing(on: Watched) -> None:
    """Nobody starts it again. Its failure is shown until another one is ready."""
    on.setting_up(0)
    on.setting_up(1)
    on.failed(1, "worker 1 failed in setup: no model", standby=False)
    on.failed(2, "new worker 2 failed in setup: no disk", standby=True)
    on.now += 5
    on.disconnected(0)
    assert on.text() == "worker 1 has been in setup for 5 s"
    on.disconnected(1)
    assert on.text() == "worker 1 failed in setup: no model"
    on.disconnected(2)
    assert on.text() == "new worker 2 failed in setup: no disk"
    on.disconnected(3)
    assert (on.starts(), on.missing(), on.why_no_standby(2)) == ({}, {}, None)
    on.ready(4)
    assert on.text() == "workers are starting"
