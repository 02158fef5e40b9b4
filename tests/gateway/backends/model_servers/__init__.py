"""Tests of the model servers as backends."""
