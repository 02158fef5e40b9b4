"""Tests of the load-test harness."""
