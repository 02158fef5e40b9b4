"""Tests of /status."""
