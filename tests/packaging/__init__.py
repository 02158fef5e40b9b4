"""Tests of the built wheel in environments of its own; scripts/test-wheel runs them."""
