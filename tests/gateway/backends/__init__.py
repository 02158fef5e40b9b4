"""Tests of the backends, which execute batches."""
