"""Costs of single mechanisms: metrics, marshalling, parsing."""
