"""Ctrl-C while the simulator starts its processes."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from uncork_dispatcher.simulator.many import _end_on_interrupt, _interrupt_later


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    # A shell starts background jobs with SIGINT ignored, and the tests may be one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    steps = []

    def block() -> None:
        with _interrupt_later():
            steps.append("nobody interrupts")
        with _interrupt_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("block ended")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == ["nobody interrupts", "block ended"]


def test_other_threads_change_no_handlers() -> None:
    """Python allows that only in the main thread."""
    handlers = []

    def work() -> None:
        with _interrupt_later():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert handlers == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize(
    ("before", "after"), [(signal.default_int_handler, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)]
)
def test_a_process_ends_silently_unless_it_runs_in_the_background(before: Any, after: object) -> None:
    signal.signal(signal.SIGINT, before)
    _end_on_interrupt()

    assert signal.getsignal(signal.SIGINT) is after
