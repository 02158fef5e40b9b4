"""Backends, which execute batches: our own workers, or other projects' model servers."""
