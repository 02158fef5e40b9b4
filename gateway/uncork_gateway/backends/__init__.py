"""Backends, which execute batches: our own workers, or other model servers."""
