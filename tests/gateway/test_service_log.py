"""Log lines about one of several services."""

import logging

import pytest

from uncork_gateway.service_log import ServiceLog


def test_lines_begin_with_the_service(caplog: pytest.LogCaptureFixture) -> None:
    """The only service needs no name."""
    caplog.set_level(logging.INFO, logger="uncork.gateway")
    ServiceLog("").info("worker %d is ready", 1)
    ServiceLog("wine@2").info("worker %d is ready", 1)
    ServiceLog("100%").error("%s", "a % b")
    assert caplog.messages == ["worker 1 is ready", "wine@2: worker 1 is ready", "100%: a % b"]
