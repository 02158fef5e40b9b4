"""Tests of the input adapters."""
