"""Decides which requests to shed and which batches to start, and when."""
