"""Helpers of these tests explain their failed assertions, as test modules do."""

import pytest

pytest.register_assert_rewrite("tests.dispatcher.core_model", "tests.dispatcher.driver")
