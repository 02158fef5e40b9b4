"""Costs of single mechanisms: decisions, metrics, marshalling, parsing."""
