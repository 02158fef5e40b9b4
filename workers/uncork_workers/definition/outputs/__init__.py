"""Output adapters, and how results become responses."""
