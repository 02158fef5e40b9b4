"""Tests of what executes batches."""
