"""Helpers explain their failed assertions."""

import pytest

pytest.register_assert_rewrite("tests.dispatcher.core.core_model", "tests.dispatcher.driver")
