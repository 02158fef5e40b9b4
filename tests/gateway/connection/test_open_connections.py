"""Client connections of a process that are counted together."""

import logging

import pytest

from uncork_gateway.connection.listener_context import OpenConnections


def test_refusals_have_a_limit_too() -> None:
    """Each of them uses a file until its client has read it."""
    connections = OpenConnections()
    assert [connections.opened(10) for _ in range(40)].index("flooded") == 26


def test_the_log_says_so_once_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    connections = OpenConnections()
    with caplog.at_level(logging.WARNING, logger="uncork.gateway"):
        for _ in range(9):
            connections.opened(3)
    [record] = caplog.records
    assert record.getMessage().startswith("refusing client connections: 3 are open")
