"""Tests of the execution of one batch."""
