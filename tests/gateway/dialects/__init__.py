"""Tests of the dialects."""
